// Ids and texts equal to those of Hugging Face `tokenizers` on awkward strings (tests/goldens/make_tokenizer.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/text/hf_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "tests/sanitized.h"
#include "tests/text/real_vocabulary.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

struct Golden {
  std::string text;
  Ids parsed;
  Ids plain;
  std::string decoded;
  std::string decoded_without_special;
};

std::vector<nlohmann::json> ReadLines(const std::string& name) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/tokenizer/" + name + ".jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// `corpora` name the files of the strings, whose lines together are those of the file `name`.
std::vector<Golden> ReadGoldens(const std::string& name, const std::vector<std::string>& corpora) {
  std::vector<nlohmann::json> texts;
  for (const std::string& corpus : corpora) {
    for (nlohmann::json& line : ReadLines(corpus)) texts.push_back(std::move(line));
  }
  const std::vector<nlohmann::json> rows = ReadLines(name);
  EXPECT_EQ(texts.size(), rows.size());
  std::vector<Golden> goldens;
  for (size_t i = 0; i < std::min(texts.size(), rows.size()); ++i) {
    Golden golden;
    golden.text = texts[i].get<std::string>();
    golden.parsed = rows[i].at("p").get<Ids>();
    golden.plain = rows[i].value("n", golden.parsed);
    golden.decoded = rows[i].value("d", golden.text);
    golden.decoded_without_special = rows[i].value("s", golden.decoded);
    goldens.push_back(golden);
  }
  return goldens;
}

struct Case {
  const char* name;
  const char* golden;
  const char* file;        // in the cache, or of reduced/
  const char* ranks = "";  // the pre-tokenizer, where the file holds ranks
};

// A family with all its tokens, from a file that is too large to commit.
class GoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string file = GetParam().file, ranks = GetParam().ranks;
    absl::StatusOr<RealVocabulary> vocabulary = ranks.empty() ? LoadRealVocabulary(file) : LoadRanks(file, ranks);
    if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    vocabulary_ = *std::move(vocabulary);
    std::vector<std::string> corpora = {"corpus"};
    if (file.rfind("tokenizers/", 0) == 0 && ranks.empty()) corpora.push_back("corpus_added");
    goldens_ = ReadGoldens(GetParam().golden, corpora);
    ASSERT_GE(goldens_.size(), 2000u);
  }

  const Tokenizer& tokenizer() const { return *vocabulary_.tokenizer; }
  Ids Encode(const std::string& text, bool parse_special) const {
    const absl::StatusOr<Ids> ids = tokenizer().Encode(text, {.add_special = false, .parse_special = parse_special});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : Ids();
  }

  void IdsAreEqualWithAndWithoutSpecialTokens(const Golden& golden) const {
    EXPECT_EQ(Encode(golden.text, true), golden.parsed);
    EXPECT_EQ(Encode(golden.text, false), golden.plain);
  }

  void DecodedTextIsEqual(const Golden& golden) const {
    EXPECT_EQ(tokenizer().Decode(golden.parsed, false), golden.decoded);
    EXPECT_EQ(tokenizer().Decode(golden.parsed, true), golden.decoded_without_special);
  }

  void TheStreamUpToAnyTokenIsTheDecodedTextOfThoseTokens(const Golden& golden) const {
    for (const bool skip_special : {false, true}) {
      Detokenizer detokenizer(&tokenizer(), skip_special);
      std::string text;
      const size_t count = std::min<size_t>(golden.parsed.size(), 128);
      for (size_t i = 0; i < count; ++i) {
        const std::string push = detokenizer.Push(golden.parsed[i]);
        ASSERT_EQ(FindInvalidUtf8(push), absl::string_view::npos);
        text += push;
        ASSERT_EQ(text + Detokenizer(detokenizer).Flush(),
                  tokenizer().Decode(absl::MakeConstSpan(golden.parsed).first(i + 1), skip_special))
            << "after token " << i;
      }
    }
  }

  // Cut anywhere between characters. Text without control tokens may be trusted here and not there.
  void SegmentsEncodeAsTheWholeText(const Golden& golden, std::mt19937& rng) const {
    std::vector<TextSegment> segments;
    for (absl::string_view rest = golden.text; !rest.empty();) {
      size_t length = 0;
      for (size_t characters = 1 + rng() % 5; characters > 0 && length < rest.size(); --characters)
        length += Utf8Length(rest[length]);
      segments.push_back({rest.substr(0, length), true});
      rest.remove_prefix(length);
    }
    for (const bool parse_special : {true, false}) {
      for (TextSegment& segment : segments) segment.parse_special = parse_special;
      const absl::StatusOr<Ids> ids = tokenizer().Encode(absl::MakeConstSpan(segments), {.add_special = false});
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, parse_special ? golden.parsed : golden.plain);
    }
    if (golden.parsed != golden.plain) return;
    for (TextSegment& segment : segments) segment.parse_special = rng() % 2 == 0;
    const absl::StatusOr<Ids> mixed = tokenizer().Encode(absl::MakeConstSpan(segments), {.add_special = false});
    ASSERT_TRUE(mixed.ok()) << mixed.status();
    EXPECT_EQ(*mixed, golden.parsed);
  }

  RealVocabulary vocabulary_;
  std::vector<Golden> goldens_;
};

// One test for all four: a vocabulary takes longer to read than the whole corpus to encode.
TEST_P(GoldenTest, IdsTextsStreamsAndSegmentsAreThoseOfHuggingFace) {
  std::mt19937 rng(1);
  for (const Golden& golden : goldens_) {
    SCOPED_TRACE(nlohmann::json(golden.text));
    IdsAreEqualWithAndWithoutSpecialTokens(golden);
    DecodedTextIsEqual(golden);
    TheStreamUpToAnyTokenIsTheDecodedTextOfThoseTokens(golden);
    SegmentsEncodeAsTheWholeText(golden, rng);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         ::testing::Values(Case{"SmolLM2", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                                           Case{"Llama2", "llama-spm", "ggml-vocab-llama-spm.gguf"},
                                           Case{"Phi3", "phi-3", "ggml-vocab-phi-3.gguf"},
                                           Case{"GPT2", "gpt-2", "ggml-vocab-gpt-2.gguf"},
                                           Case{"Qwen2", "qwen2", "ggml-vocab-qwen2.gguf"},
                                           Case{"Llama3", "llama-bpe", "ggml-vocab-llama-bpe.gguf"}),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(
    TokenizerJson, GoldenTest,
    ::testing::Values(
        Case{"Mistral", "mistral", "tokenizers/mistral"}, Case{"Llama3", "llama-3.1", "tokenizers/llama-3"},
        Case{"Llama31", "llama-3.1", "tokenizers/llama-3.1"}, Case{"Qwen3", "qwen3", "tokenizers/qwen3"},
        Case{"GptOss", "gpt-oss", "tokenizers/gpt-oss"}, Case{"DeepSeekV2", "deepseek-v2", "tokenizers/deepseek-v2"},
        Case{"DeepSeekV3", "deepseek-v3", "tokenizers/deepseek-v3"}, Case{"Gemma2", "gemma-2", "tokenizers/gemma-2"},
        Case{"Gemma3", "gemma-3", "tokenizers/gemma-3"}, Case{"Olmo1", "olmo-1", "tokenizers/olmo-1"},
        Case{"Olmo2", "olmo-2", "tokenizers/olmo-2"}, Case{"KimiK2", "kimi-k2", "tokenizers/kimi-k2"}),
    [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Ranks, GoldenTest,
                         ::testing::Values(Case{"Llama4", "llama-4", "tokenizers/llama-4/tokenizer.model", "llama4"},
                                           Case{"Tekken", "tekken", "tokenizers/tekken/tekken_240911.json", "tekken"}),
                         [](const auto& info) { return info.param.name; });

// What a GGUF file of the family names as its `pre`, on the vocabulary of the tokenizer.json, makes the same ids.
TEST(RecipeTest, TheRecipeThatGgufNamesIsTheTokenizerJsons) {
  const std::pair<const char*, const char*> families[] = {
      {"llama-3.1", "llama-bpe"},     {"qwen3", "qwen2"}, {"gpt-oss", "gpt-4o"}, {"deepseek-v2", "deepseek-llm"},
      {"deepseek-v3", "deepseek-v3"}, {"olmo-1", "olmo"}, {"olmo-2", "dbrx"},    {"kimi-k2", "kimi-k2"},
  };
  std::string missing;
  for (const auto& [family, recipe] : families) {
    absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary(std::string("tokenizers/") + family);
    if (absl::IsNotFound(vocabulary.status())) {
      missing += std::string(" ") + family;
      continue;
    }
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    vocabulary->spec.normalizer.clear();
    vocabulary->spec.pre_tokenizer.clear();
    vocabulary->spec.pre = recipe;
    const auto tokenizer = Tokenizer::Create(vocabulary->spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::vector<Golden> goldens = ReadGoldens(family, {"corpus", "corpus_added"});
    for (size_t i = 0; i < goldens.size(); i += kSanitized ? 8 : 1) {
      const Golden& golden = goldens[i];
      const absl::StatusOr<Ids> ids = (*tokenizer)->Encode(golden.text, {.add_special = false, .parse_special = false});
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, golden.plain) << family << ": " << nlohmann::json(golden.text);
    }
  }
  if (!missing.empty()) GTEST_SKIP() << "not there:" << missing;
}

// Families with few merges, and made-up tokenizers for what none of them shows: they need no file but their own.
class ReducedGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ReducedGoldenTest, IdsAndTextsAreEqual) {
  const std::string name = std::string("reduced/") + GetParam();
  const std::string json = ReadFile(std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/tokenizer/" + name + ".json");
  absl::StatusOr<HfTokenizer> read = ReadHfTokenizer({.tokenizer_json = json});
  ASSERT_TRUE(read.ok()) << read.status();
  const auto tokenizer = Tokenizer::Create(std::move(read->spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<Golden> goldens = ReadGoldens(name, {"reduced/corpus"});
  ASSERT_GE(goldens.size(), 300u);
  for (const Golden& golden : goldens) {
    const absl::StatusOr<Ids> parsed = (*tokenizer)->Encode(golden.text);
    const absl::StatusOr<Ids> plain = (*tokenizer)->Encode(golden.text, {.add_special = false, .parse_special = false});
    ASSERT_TRUE(parsed.ok() && plain.ok()) << parsed.status() << plain.status();
    EXPECT_EQ(*parsed, golden.parsed) << nlohmann::json(golden.text);
    EXPECT_EQ(*plain, golden.plain) << nlohmann::json(golden.text);
    EXPECT_EQ((*tokenizer)->Decode(golden.parsed, false), golden.decoded) << nlohmann::json(golden.text);
    EXPECT_EQ((*tokenizer)->Decode(golden.parsed, true), golden.decoded_without_special) << nlohmann::json(golden.text);
  }
}

INSTANTIATE_TEST_SUITE_P(TokenizerJson, ReducedGoldenTest,
                         ::testing::Values("mistral", "llama-3.1", "qwen3", "gpt-oss", "deepseek-v3", "gemma-3",
                                           "olmo-2", "flags-nfc", "flags-nfkd", "prepend", "metaspace-always-split",
                                           "metaspace-first-whole", "metaspace-first-split", "metaspace-never-split",
                                           "split-Isolated-matches", "split-Isolated-gaps", "split-Removed-matches",
                                           "split-Removed-gaps", "split-MergedWithPrevious-matches",
                                           "split-MergedWithPrevious-gaps", "split-MergedWithNext-matches",
                                           "split-MergedWithNext-gaps", "split-Contiguous-matches",
                                           "split-Contiguous-gaps", "digits", "bytes-metaspace", "falcon",
                                           "punctuation", "whitespace"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

// Ids that no text has, through every order of a decoder's steps: whole, and streamed up to every token.
TEST(DecoderGoldenTest, AnyIdsDecodeAndStreamAsTheReference) {
  std::vector<nlohmann::json> lines = ReadLines("decoders");
  ASSERT_GT(lines.size(), 10u);
  nlohmann::json vocab;
  for (size_t id = 0; id < lines[0].size(); ++id) vocab[lines[0][id].get<std::string>()] = id;
  for (const nlohmann::json& line : absl::MakeConstSpan(lines).subspan(1)) {
    const std::string json =
        nlohmann::json{{"added_tokens", {{{"id", 0}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
                       {"decoder", line["decoder"]},
                       {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}
            .dump();
    absl::StatusOr<HfTokenizer> read = ReadHfTokenizer({.tokenizer_json = json});
    ASSERT_TRUE(read.ok()) << read.status();
    const auto tokenizer = Tokenizer::Create(std::move(read->spec));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const nlohmann::json& row : line["rows"]) {
      SCOPED_TRACE(line["decoder"].dump() + row.dump());
      const Ids ids = row[0].get<Ids>();
      EXPECT_EQ((*tokenizer)->Decode(ids, false), row[1].get<std::string>());
      EXPECT_EQ((*tokenizer)->Decode(ids, true), row[2].get<std::string>());
      Detokenizer detokenizer(tokenizer->get(), false);
      std::string text;
      for (size_t i = 0; i < ids.size(); ++i) {
        text += detokenizer.Push(ids[i]);
        ASSERT_EQ(text + Detokenizer(detokenizer).Flush(),
                  (*tokenizer)->Decode(absl::MakeConstSpan(ids).first(i + 1), false));
      }
    }
  }
}

TEST(RealVocabularyTest, TheReferenceIdsOfFourTexts) {
  struct Family {
    const char* file;
    std::vector<Ids> ids;
  };
  const char* texts[] = {"Hello world", " Hello  world", "a😀b", "<think> a</think>"};
  const Family families[] = {
      {"mistral",
       {{1, 22557, 1526},
        {1, 28705, 22557, 28705, 1526},
        {1, 264, 30575, 28726},
        {1, 523, 24036, 28767, 264, 700, 24036, 28767}}},
      {"gemma-3",
       {{2, 9259, 1902},
        {2, 26352, 138, 12392},
        {2, 236746, 242398, 236763},
        {2, 236820, 36345, 236813, 496, 954, 36345, 236813}}},
      {"llama-3.1",
       {{128000, 9906, 1917},
        {128000, 22691, 220, 1917},
        {128000, 64, 76460, 222, 65},
        {128000, 14023, 771, 29, 264, 524, 27963, 29}}},
      {"qwen3", {{9707, 1879}, {21927, 220, 1879}, {64, 141334, 65}, {151667, 264, 151668}}},
      {"gpt-oss", {{13225, 2375}, {32949, 220, 2375}, {64, 84083, 65}, {33313, 881, 29, 261, 808, 49631, 29}}},
      {"deepseek-v3", {{19923, 2058}, {45948, 223, 2058}, {67, 28927, 225, 68}, {30, 37947, 32, 260, 1718, 37947, 32}}},
  };
  std::string missing;
  for (const Family& family : families) {
    const auto vocabulary = LoadRealVocabulary(std::string("tokenizers/") + family.file);
    if (absl::IsNotFound(vocabulary.status())) {
      missing += std::string(" ") + family.file;
      continue;
    }
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    for (size_t i = 0; i < family.ids.size(); ++i) {
      EXPECT_EQ(*vocabulary->tokenizer->Encode(texts[i]), family.ids[i]) << family.file << ": " << texts[i];
    }
  }
  if (!missing.empty()) GTEST_SKIP() << "not there:" << missing;
}

// What is no control token is one token in a message as it is for the reference; what is stays text.
TEST(RealVocabularyTest, AddedTokensOfMessagesAreThoseThatStructureNothing) {
  struct Family {
    const char* file;
    std::vector<std::string> found;
    std::vector<std::string> text;
  };
  const Family families[] = {
      {"gemma-3",
       {"<b>", "</s>", "\n\n\n", "<table>", "▁▁▁", "[multimodal]"},
       {"<start_of_turn>", "<end_of_turn>", "<bos>"}},
      {"qwen3",
       {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"},
       {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|fim_prefix|>"}},
      {"deepseek-v3",
       {},
       {"<｜User｜>", "<｜Assistant｜>", "<｜tool▁outputs▁begin｜>", "<｜end▁of▁sentence｜>", "<|EOT|>"}},
      {"olmo-2", {"|||PHONE_NUMBER|||"}, {"<|endoftext|>", "<|im_start|>"}},
      {"llama-3.1", {}, {"<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>"}},
  };
  std::string missing;
  for (const Family& family : families) {
    const auto vocabulary = LoadRealVocabulary(std::string("tokenizers/") + family.file);
    if (absl::IsNotFound(vocabulary.status())) {
      missing += std::string(" ") + family.file;
      continue;
    }
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    const Tokenizer& t = *vocabulary->tokenizer;
    const auto as_message = [&t](const std::string& text) {
      const std::vector<TextSegment> segments = {{"", true}, {text, false}};
      return *t.Encode(absl::MakeConstSpan(segments), {.add_special = false});
    };
    for (const std::string& text : family.found) EXPECT_EQ(as_message(text).size(), 1u) << family.file << text;
    for (const std::string& text : family.text) {
      EXPECT_GT(as_message(text).size(), 1u) << family.file << text;
      EXPECT_EQ(t.Encode(text, {.add_special = false})->size(), 1u) << family.file << text;
    }
  }
  if (!missing.empty()) GTEST_SKIP() << "not there:" << missing;
}

TEST(RealVocabularyTest, NamesInTokenizerConfigBecomeIds) {
  absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary("tokenizers/qwen3");
  if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const Tokenizer& t = *vocabulary->tokenizer;
  EXPECT_EQ(t.eos_id(), 151645);
  EXPECT_EQ(t.bos_id(), std::nullopt);
  EXPECT_EQ(t.pad_id(), 151643);
  EXPECT_THAT(t.end_of_generation_ids(), ::testing::Contains(151643));
  EXPECT_EQ(t.Decode({151667, 264, 151668, 151645}, true), "<think> a</think>");  // not special
}

TEST(RealVocabularyTest, SmolLm2SaysWhatItsFileSays) {
  absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const Tokenizer& t = *vocabulary->tokenizer;
  EXPECT_EQ(t.vocab_size(), 49152);
  EXPECT_EQ(t.bos_id(), 1);
  EXPECT_EQ(t.eos_id(), 2);
  EXPECT_EQ(t.TokenText(2), "<|im_end|>");
  EXPECT_THAT(t.end_of_generation_ids(), ::testing::ElementsAre(0, 2));  // <|endoftext|>, <|im_end|>
  // The vocabulary lacks byte 04, so the byte vanishes.
  EXPECT_EQ(t.Decode(*t.Encode("a\x04"
                               "b"),
                     false),
            "ab");
}

// As in the family's tokenizer.json: a chat's newlines are no tokens.
TEST(RealVocabularyTest, ControlTokensOfPhi3TakeTheWhiteSpaceAfterThem) {
  absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary("ggml-vocab-phi-3.gguf");
  if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const Tokenizer& t = *vocabulary->tokenizer;
  EXPECT_EQ(*t.Encode("<|user|>\n Hi<|end|>\n<|assistant|>\n"), (Ids{1, 32010, 6324, 32007, 32001}));
  EXPECT_EQ(*t.Encode("<|endoftext|>\nHi"), (Ids{1, 32000, 29871, 13, 18567}));
}

TEST(RealVocabularyTest, Llama2StartsWithBosAndDropsItsSpace) {
  absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary("ggml-vocab-llama-spm.gguf");
  if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const Tokenizer& t = *vocabulary->tokenizer;
  const absl::StatusOr<Ids> ids = t.Encode("Hello world");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (Ids{1, 15043, 3186}));
  EXPECT_EQ(t.Decode(*ids, true), "Hello world");
  EXPECT_EQ(*t.Encode(""), (Ids{1}));
}

}  // namespace
}  // namespace sluice
