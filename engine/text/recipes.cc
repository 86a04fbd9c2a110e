#include "engine/text/recipes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/quote.h"

namespace sluice {

using absl::string_view;

const string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Hugging Face's "Digits" asks Rust's standard library, whose tables are Unicode 17: it knows the two ranges that \p{N}
// of Unicode 16 does not.
const string_view kDigitPattern = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
const string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// cl100k's line, which Llama 3, Qwen2 and OLMo 2 follow: contractions in either case, punctuation takes the newlines
// after it. `numbers` says how many digits are a word.
std::string Cl100k(string_view numbers) {
  return absl::StrCat(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)", numbers,
                      R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

// o200k's line, which gpt-oss, Llama 4 and Tekken follow: words end where capitals begin again.
std::string O200k(string_view contraction, string_view numbers) {
  return absl::StrCat(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)", contraction,
                      R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)", contraction,
                      "|", numbers, R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

// DeepSeek LLM and V2 list the letters of the scripts that have two cases. Those that Unicode's normalization form C
// would replace are written as numbers, so that no editor can.
constexpr string_view kDeepSeekLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-"
    "ᴫᵫ-"
    "ᵷᵹ-"
    "ᶚḀ-"
    "ἕἘ-"
    "Ἕἠ-"
    "ὅὈ-"
    "Ὅὐ-"
    "ὗὙὛὝὟ-\\x{1F7D}ᾀ-"
    "ᾴᾶ-ᾼ\\x{1FBE}ῂ-"
    "ῄῆ-ῌῐ-\\x{1FD3}ῖ-\\x{1FDB}"
    "ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ\\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-"
    "ꞎꭰ-"
    "ꮿﬀ-"
    "ﬆﬓ-"
    "ﬗＡ-"
    "Ｚａ-"
    "ｚ𐐀-"
    "𐑏𐒰-"
    "𐓓𐓘-𐓻𐲀-𐲲𐳀-"
    "𐳲𑢠-𑣟𞤀-𞥃]+";

PreTokenizerStep Isolate(string_view pattern) { return {.pattern = {std::string(pattern), true}}; }

const std::vector<Recipe>& Recipes() {
  constexpr string_view kThreeDigits = R"(\p{N}{1,3})", kOneDigit = R"(\p{N})";
  constexpr string_view kContraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)";
  static const auto* const recipes = new std::vector<Recipe>{
      {.names = {"gpt-2"}, .pre_tokenizer = {Isolate(kGpt2Pattern)}},
      {.names = {"olmo"}, .pre_tokenizer = {Isolate(kGpt2Pattern)}, .normalizer = {{.kind = NormalizerKind::kNfc}}},
      {.names = {"smollm"}, .pre_tokenizer = {Isolate(kDigitPattern), Isolate(kGpt2Pattern)}},
      {.names = {"llama-bpe", "llama3", "llama-v3"},
       .pre_tokenizer = {Isolate(Cl100k(kThreeDigits))},
       .ignore_merges = true,
       .add_bos = true},
      {.names = {"dbrx", "smaug-bpe"}, .pre_tokenizer = {Isolate(Cl100k(kThreeDigits))}},
      {.names = {"qwen2", "deepseek-r1-qwen"},
       .pre_tokenizer = {Isolate(Cl100k(kOneDigit))},
       .normalizer = {{.kind = NormalizerKind::kNfc}}},
      {.names = {"qwen35"},
       .pre_tokenizer = {Isolate(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                                 R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
       .normalizer = {{.kind = NormalizerKind::kNfc}}},
      {.names = {"gpt-4o", "llama4"},
       .pre_tokenizer = {Isolate(O200k(kContraction, kThreeDigits))},
       .ignore_merges = true},
      {.names = {"tekken"}, .pre_tokenizer = {Isolate(O200k("", kOneDigit))}, .ignore_merges = true, .add_bos = true},
      {.names = {"kimi-k2"}, .pre_tokenizer = {Isolate(kKimiPattern)}, .ignore_merges = true},
      {.names = {"deepseek-llm"},
       .pre_tokenizer = {Isolate("[\r\n]"), Isolate(kDeepSeekLetters), Isolate("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
                         Isolate("\\s+$"), Isolate("[一-龥ࠀ-一가-퟿]+"), Isolate("\\p{N}+")}},
      {.names = {"deepseek-coder"},
       .pre_tokenizer = {Isolate("[\r\n]"), Isolate(R"(\s?\p{L}+)"), Isolate(R"(\s?\p{P}+)"),
                         Isolate("[一-龥ࠀ-一가-퟿]+"), Isolate(kOneDigit)}},
      {.names = {"deepseek-v3"},
       .pre_tokenizer = {Isolate(kThreeDigits), Isolate("[一-龥぀-ゟ゠-ヿ]+"),
                         Isolate(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                                 "\r\n"
                                 R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                                 "\r\n"
                                 R"(]*|\s*[)"
                                 "\r\n"
                                 R"(]+|\s+(?!\S)|\s+)")}},
  };
  return *recipes;
}

}  // namespace

absl::StatusOr<const Recipe*> FindRecipe(string_view name) {
  std::vector<string_view> known;
  for (const Recipe& recipe : Recipes()) {
    for (const string_view n : recipe.names) {
      if (n == name) return &recipe;
      known.push_back(n);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer pre: found ", Quote(name), ", expected one of ", absl::StrJoin(known, ", ")));
}

}  // namespace sluice
