// Ids and texts equal to those of Hugging Face `tokenizers` on awkward strings (tests/goldens/make_tokenizer.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
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

std::vector<Golden> ReadGoldens(const std::string& name) {
  const std::vector<nlohmann::json> texts = ReadLines("corpus"), rows = ReadLines(name);
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
  const char* file;
};

class GoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary(GetParam().file);
    if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    vocabulary_ = *std::move(vocabulary);
    goldens_ = ReadGoldens(GetParam().golden);
    ASSERT_GE(goldens_.size(), 2000u);
  }

  const Tokenizer& tokenizer() const { return *vocabulary_.tokenizer; }
  Ids Encode(const std::string& text, bool parse_special) const {
    const absl::StatusOr<Ids> ids = tokenizer().Encode(text, {.add_special = false, .parse_special = parse_special});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : Ids();
  }

  RealVocabulary vocabulary_;
  std::vector<Golden> goldens_;
};

TEST_P(GoldenTest, IdsAreEqualWithAndWithoutSpecialTokens) {
  for (const Golden& golden : goldens_) {
    EXPECT_EQ(Encode(golden.text, true), golden.parsed) << nlohmann::json(golden.text);
    EXPECT_EQ(Encode(golden.text, false), golden.plain) << nlohmann::json(golden.text);
  }
}

TEST_P(GoldenTest, DecodedTextIsEqual) {
  for (const Golden& golden : goldens_) {
    EXPECT_EQ(tokenizer().Decode(golden.parsed, false), golden.decoded) << nlohmann::json(golden.text);
    EXPECT_EQ(tokenizer().Decode(golden.parsed, true), golden.decoded_without_special) << nlohmann::json(golden.text);
  }
}

TEST_P(GoldenTest, TheStreamUpToAnyTokenIsTheDecodedTextOfThoseTokens) {
  for (const Golden& golden : goldens_) {
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
            << nlohmann::json(golden.text) << " after token " << i;
      }
    }
  }
}

TEST_P(GoldenTest, SegmentsOfOneKindEncodeAsTheWholeText) {
  std::mt19937 rng(1);
  for (const Golden& golden : goldens_) {
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
      EXPECT_EQ(*ids, parse_special ? golden.parsed : golden.plain) << nlohmann::json(golden.text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         ::testing::Values(Case{"SmolLM2", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                                           Case{"Llama2", "llama-spm", "ggml-vocab-llama-spm.gguf"},
                                           Case{"GPT2", "gpt-2", "ggml-vocab-gpt-2.gguf"},
                                           Case{"Llama3", "llama-bpe", "ggml-vocab-llama-bpe.gguf"}),
                         [](const auto& info) { return info.param.name; });

TEST(RealVocabularyTest, SmolLm2SaysWhatItsFileSays) {
  absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const Tokenizer& t = *vocabulary->tokenizer;
  EXPECT_EQ(t.vocab_size(), 49152);
  EXPECT_EQ(t.bos_id(), 1);
  EXPECT_EQ(t.eos_id(), 2);
  EXPECT_EQ(t.TokenText(2), "<|im_end|>");
  EXPECT_TRUE(t.IsEndOfGeneration(2));
  EXPECT_TRUE(t.IsEndOfGeneration(0));  // <|endoftext|>
  EXPECT_EQ(t.end_of_generation_ids().size(), 2u);
  // The vocabulary lacks byte 04, so the byte vanishes.
  EXPECT_EQ(t.Decode(*t.Encode("a\x04"
                               "b"),
                     false),
            "ab");
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
