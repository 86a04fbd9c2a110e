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
// Hugging Face's "Punctuation" asks a library whose tables are Unicode 8: these are its characters.
const string_view kPunctuationPattern =
    R"([\x{21}-\x{2F}\x{3A}-\x{40}\x{5B}-\x{60}\x{7B}-\x{7E}\x{A1}\x{A7}\x{AB}\x{B6}-\x{B7}\x{BB}\x{BF}\x{37E})"
    R"(\x{387}\x{55A}-\x{55F}\x{589}-\x{58A}\x{5BE}\x{5C0}\x{5C3}\x{5C6}\x{5F3}-\x{5F4}\x{609}-\x{60A})"
    R"(\x{60C}-\x{60D}\x{61B}\x{61E}-\x{61F}\x{66A}-\x{66D}\x{6D4}\x{700}-\x{70D}\x{7F7}-\x{7F9}\x{830}-\x{83E})"
    R"(\x{85E}\x{964}-\x{965}\x{970}\x{AF0}\x{DF4}\x{E4F}\x{E5A}-\x{E5B}\x{F04}-\x{F12}\x{F14}\x{F3A}-\x{F3D})"
    R"(\x{F85}\x{FD0}-\x{FD4}\x{FD9}-\x{FDA}\x{104A}-\x{104F}\x{10FB}\x{1360}-\x{1368}\x{1400}\x{166D}-\x{166E})"
    R"(\x{169B}-\x{169C}\x{16EB}-\x{16ED}\x{1735}-\x{1736}\x{17D4}-\x{17D6}\x{17D8}-\x{17DA}\x{1800}-\x{180A})"
    R"(\x{1944}-\x{1945}\x{1A1E}-\x{1A1F}\x{1AA0}-\x{1AA6}\x{1AA8}-\x{1AAD}\x{1B5A}-\x{1B60}\x{1BFC}-\x{1BFF})"
    R"(\x{1C3B}-\x{1C3F}\x{1C7E}-\x{1C7F}\x{1CC0}-\x{1CC7}\x{1CD3}\x{2010}-\x{2027}\x{2030}-\x{2043})"
    R"(\x{2045}-\x{2051}\x{2053}-\x{205E}\x{207D}-\x{207E}\x{208D}-\x{208E}\x{2308}-\x{230B}\x{2329}-\x{232A})"
    R"(\x{2768}-\x{2775}\x{27C5}-\x{27C6}\x{27E6}-\x{27EF}\x{2983}-\x{2998}\x{29D8}-\x{29DB}\x{29FC}-\x{29FD})"
    R"(\x{2CF9}-\x{2CFC}\x{2CFE}-\x{2CFF}\x{2D70}\x{2E00}-\x{2E2E}\x{2E30}-\x{2E42}\x{3001}-\x{3003})"
    R"(\x{3008}-\x{3011}\x{3014}-\x{301F}\x{3030}\x{303D}\x{30A0}\x{30FB}\x{A4FE}-\x{A4FF}\x{A60D}-\x{A60F}\x{A673})"
    R"(\x{A67E}\x{A6F2}-\x{A6F7}\x{A874}-\x{A877}\x{A8CE}-\x{A8CF}\x{A8F8}-\x{A8FA}\x{A8FC}\x{A92E}-\x{A92F})"
    R"(\x{A95F}\x{A9C1}-\x{A9CD}\x{A9DE}-\x{A9DF}\x{AA5C}-\x{AA5F}\x{AADE}-\x{AADF}\x{AAF0}-\x{AAF1}\x{ABEB})"
    R"(\x{FD3E}-\x{FD3F}\x{FE10}-\x{FE19}\x{FE30}-\x{FE52}\x{FE54}-\x{FE61}\x{FE63}\x{FE68}\x{FE6A}-\x{FE6B})"
    R"(\x{FF01}-\x{FF03}\x{FF05}-\x{FF0A}\x{FF0C}-\x{FF0F}\x{FF1A}-\x{FF1B}\x{FF1F}-\x{FF20}\x{FF3B}-\x{FF3D})"
    R"(\x{FF3F}\x{FF5B}\x{FF5D}\x{FF5F}-\x{FF65}\x{10100}-\x{10102}\x{1039F}\x{103D0}\x{1056F}\x{10857}\x{1091F})"
    R"(\x{1093F}\x{10A50}-\x{10A58}\x{10A7F}\x{10AF0}-\x{10AF6}\x{10B39}-\x{10B3F}\x{10B99}-\x{10B9C})"
    R"(\x{11047}-\x{1104D}\x{110BB}-\x{110BC}\x{110BE}-\x{110C1}\x{11140}-\x{11143}\x{11174}-\x{11175})"
    R"(\x{111C5}-\x{111C9}\x{111CD}\x{111DB}\x{111DD}-\x{111DF}\x{11238}-\x{1123D}\x{112A9}\x{114C6})"
    R"(\x{115C1}-\x{115D7}\x{11641}-\x{11643}\x{1173C}-\x{1173E}\x{12470}-\x{12474}\x{16A6E}-\x{16A6F}\x{16AF5})"
    R"(\x{16B37}-\x{16B3B}\x{16B44}\x{1BC9F}\x{1DA87}-\x{1DA8B}])";
const string_view kWhiteSpacePattern =
    R"([\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}])";
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
