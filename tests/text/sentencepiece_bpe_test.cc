#include "engine/text/sentencepiece_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/text/tiny_vocabulary.h"

namespace sluice {
namespace {

using absl::string_view;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr int32_t kFirstByte = 3, kFirstPiece = kFirstByte + 256;  // of TinyVocabulary::SentencePiece with byte tokens

Ids Encode(const TinyVocabulary& vocabulary, string_view text) {
  const absl::StatusOr<SentencePieceBpe> bpe = SentencePieceBpe::Create(vocabulary.spec);
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  MergeScratch scratch;
  Ids ids;
  bpe->Encode(text, &scratch, &ids);
  return ids;
}

TEST(SentencePieceBpeTest, TheHighestScoreMergesFirstAndTheLeftmostOfEquals) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"bc", "ab", "▁", "a", "b", "c", "aa"});
  v.spec.add_space_prefix = false;
  EXPECT_EQ(Encode(v, "abc"), (Ids{kFirstPiece + 3, kFirstPiece + 0}));
  EXPECT_EQ(Encode(v, "ab"), (Ids{kFirstPiece + 1}));
  EXPECT_EQ(Encode(v, "aaa"), (Ids{kFirstPiece + 6, kFirstPiece + 3}));
  for (float& score : v.spec.scores) score = 0;
  EXPECT_EQ(Encode(v, "abc"), (Ids{kFirstPiece + 1, kFirstPiece + 5}));  // equal scores: ab is further left
}

TEST(SentencePieceBpeTest, AddsTheSpacePrefixUnlessEmpty) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"▁a", "▁", "a"});
  EXPECT_EQ(Encode(v, ""), Ids{});
  EXPECT_EQ(Encode(v, "a"), (Ids{kFirstPiece}));
  EXPECT_EQ(Encode(v, " a"), (Ids{kFirstPiece + 1, kFirstPiece}));
  EXPECT_EQ(Encode(v, "▁a"), (Ids{kFirstPiece + 1, kFirstPiece}));  // the mark of the text itself is a space
  v.spec.add_space_prefix = false;
  EXPECT_EQ(Encode(v, ""), Ids{});
  EXPECT_EQ(Encode(v, " a"), (Ids{kFirstPiece}));
}

TEST(SentencePieceBpeTest, WhatIsNoPieceBecomesBytes) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"a"});
  v.spec.add_space_prefix = false;
  EXPECT_EQ(Encode(v, "aé"), (Ids{kFirstPiece, kFirstByte + 0xC3, kFirstByte + 0xA9}));
  EXPECT_EQ(Encode(v, string_view("\0", 1)), (Ids{kFirstByte}));
  EXPECT_EQ(Encode(v, " "), (Ids{kFirstByte + 0xE2, kFirstByte + 0x96, kFirstByte + 0x81}));
}

TEST(SentencePieceBpeTest, CharactersWithoutBytesBecomeOneUnknown) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"a"});
  v.spec.add_space_prefix = false;
  v.spec.types[kFirstByte + 0xA9] = TokenType::kUnused;  // no byte A9: é has only half its bytes
  EXPECT_EQ(Encode(v, "éé"), (Ids{0}));
  EXPECT_EQ(Encode(v, "éaéü"), (Ids{0, kFirstPiece, 0, kFirstByte + 0xC3, kFirstByte + 0xBC}));
  TinyVocabulary no_bytes = TinyVocabulary::SentencePiece({"a"}, /*byte_tokens=*/false);
  no_bytes.spec.add_space_prefix = false;
  EXPECT_EQ(Encode(no_bytes, "xyazz"), (Ids{0, 3, 0}));
  no_bytes.spec.unk_id.reset();
  EXPECT_EQ(Encode(no_bytes, "xyazz"), (Ids{3}));
}

TEST(SentencePieceBpeTest, TextNeverMergesIntoControlOrByteTokens) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"<s", "<", "s", ">", "<0x0", "A", "0", "x", "<0", "<0x"});
  v.spec.add_space_prefix = false;
  EXPECT_EQ(Encode(v, "<s>"), (Ids{kFirstPiece, kFirstPiece + 3}));
  EXPECT_EQ(Encode(v, "<0x0A>"), (Ids{kFirstPiece + 4, kFirstPiece + 5, kFirstPiece + 3}));
}

TEST(SentencePieceBpeTest, TokensStandForBytes) {
  const auto bytes = [](string_view token, TokenType type) {
    std::string out;
    AppendSentencePieceBytes(token, type, &out);
    return out;
  };
  EXPECT_EQ(bytes("▁the▁", TokenType::kNormal), " the ");
  EXPECT_EQ(bytes("<0xe2>", TokenType::kByte), "\xE2");
  EXPECT_EQ(bytes("<0x0A>", TokenType::kNormal), "<0x0A>");
  EXPECT_EQ(bytes("</s>", TokenType::kControl), "</s>");
  EXPECT_EQ(bytes("\xE2\x96", TokenType::kNormal), "\xE2\x96");
}

TEST(SentencePieceBpeTest, SpecsThatCannotBeAreRefused) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"a"});
  v.spec.scores.pop_back();
  EXPECT_THAT(SentencePieceBpe::Create(v.spec).status().message(),
              HasSubstr("scores: found 259, expected one for each of 260"));
  v.spec.scores.push_back(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(SentencePieceBpe::Create(v.spec).status().message(), HasSubstr("scores[259]: found NaN"));
  v.spec.scores.back() = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(SentencePieceBpe::Create(v.spec).ok());
  v.spec.tokens[10] = "<0x7G>";
  EXPECT_THAT(SentencePieceBpe::Create(v.spec).status().message(), HasSubstr("tokens[10]: found '<0x7G>'"));
}

}  // namespace
}  // namespace sluice
