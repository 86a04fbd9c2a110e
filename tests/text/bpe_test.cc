#include "engine/text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/text/tiny_vocabulary.h"

namespace sluice {
namespace {

using absl::string_view;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

Ids Encode(const ByteLevelBpe& bpe, string_view word) {
  MergeScratch scratch;
  Ids ids;
  bpe.Encode(word, &scratch, &ids);
  return ids;
}

ByteLevelBpe Make(const TinyVocabulary& vocabulary, bool ignore_merges = false) {
  TokenizerSpec spec = vocabulary.spec;
  spec.ignore_merges = ignore_merges;
  absl::StatusOr<ByteLevelBpe> bpe = ByteLevelBpe::Create(spec);
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  return *std::move(bpe);
}

TEST(ByteAlphabetTest, EveryByteHasItsOwnPrintableCharacter) {
  EXPECT_EQ(ByteLevelCharacter('!'), U'!');
  EXPECT_EQ(ByteLevelCharacter('~'), U'~');
  EXPECT_EQ(ByteLevelCharacter(0), U'Ā');
  EXPECT_EQ(ByteLevelCharacter(' '), U'Ġ');
  EXPECT_EQ(ByteLevelCharacter('\n'), U'Ċ');
  EXPECT_EQ(ByteLevelCharacter(0x7F), U'ġ');
  EXPECT_EQ(ByteLevelCharacter(0xA0), U'ł');
  EXPECT_EQ(ByteLevelCharacter(0xAD), U'\u0143');
  EXPECT_EQ(ByteLevelCharacter(0xFF), U'ÿ');
}

TEST(ByteAlphabetTest, TokensSpellBytesUnlessOneCharacterIsForeign) {
  const auto bytes = [](string_view token) {
    std::string out = "x";
    AppendByteLevelBytes(token, &out);
    return out.substr(1);
  };
  EXPECT_EQ(bytes("Ġthe"), " the");
  EXPECT_EQ(bytes("ðŁĺĢ"), "😀");
  EXPECT_EQ(bytes("caféx"), "caf\xE9x");
  EXPECT_EQ(bytes("<|im_end|>"), "<|im_end|>");
  EXPECT_EQ(bytes("a b"), "a b");
  EXPECT_EQ(bytes("Ġ｜"), "Ġ｜");
  EXPECT_EQ(bytes("a\xADz"), "a\xADz");  // not UTF-8: kept
  EXPECT_EQ(bytes("a\xC3"), "a\xC3");
  EXPECT_EQ(bytes("a\xC3z"), "a\xC3z");
  EXPECT_EQ(bytes(""), "");
}

TEST(ByteLevelBpeTest, TheBestRankedPairMergesFirstAndTheLeftmostOfEquals) {
  const TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", {"b c", "a b", "a a", "aa a"});
  const ByteLevelBpe bpe = Make(v);
  EXPECT_EQ(Encode(bpe, "abc"), (Ids{'a', 256}));
  EXPECT_EQ(Encode(bpe, "ab"), (Ids{257}));
  EXPECT_EQ(Encode(bpe, "aaa"), (Ids{259}));  // aa+a, not a+aa
  EXPECT_EQ(Encode(bpe, "aaaa"), (Ids{258, 258}));
  EXPECT_EQ(Encode(bpe, "aaaaa"), (Ids{258, 259}));
  EXPECT_EQ(Encode(bpe, ""), Ids{});
  EXPECT_EQ(Encode(bpe, string_view("\0\xFF", 2)), (Ids{0, 255}));
}

TEST(ByteLevelBpeTest, AMergeOpensPairsOnBothSides) {
  const TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", {"h e", "l l", "he ll", "hell o", "Ġ hello"});
  const ByteLevelBpe bpe = Make(v);
  EXPECT_EQ(Encode(bpe, " hello"), (Ids{260}));
  EXPECT_EQ(Encode(bpe, "hellohello"), (Ids{259, 259}));
  EXPECT_EQ(Encode(bpe, "ello"), (Ids{'e', 257, 'o'}));
}

TEST(ByteLevelBpeTest, AByteWithoutASymbolVanishesAndItsNeighboursMeet) {
  TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", {"a b"});
  v.spec.tokens[4] = "[no byte 04]";
  const ByteLevelBpe bpe = Make(v);
  EXPECT_EQ(Encode(bpe,
                   "a\x04"
                   "b"),
            (Ids{256}));
  EXPECT_EQ(Encode(bpe, "\x04\x04"), Ids{});
}

TEST(ByteLevelBpeTest, WithIgnoreMergesAWordThatIsATokenIsThatToken) {
  TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", {"a b"});
  const int32_t whole = v.Add("Ġabc", TokenType::kNormal);
  EXPECT_EQ(Encode(Make(v, false), " abc"), (Ids{' ', 256, 'c'}));
  EXPECT_EQ(Encode(Make(v, true), " abc"), (Ids{whole}));
  EXPECT_EQ(Encode(Make(v, true), "abc"), (Ids{256, 'c'}));
}

TEST(ByteLevelBpeTest, APairListedTwiceHasItsLaterRank) {
  TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", {"a b", "b c"});
  v.spec.merges.push_back({"a", "b"});
  EXPECT_EQ(Encode(Make(v), "abc"), (Ids{'a', 257}));
}

TEST(ByteLevelBpeTest, RefusesAMergeOfUnknownTokensByNumber) {
  for (const char* merge : {"a", "zz b", "a zz", "a c"}) {
    TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", {"a b"});
    v.spec.merges.push_back(ParseMergeRule(merge));
    const absl::Status status = ByteLevelBpe::Create(v.spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << merge;
    EXPECT_THAT(status.message(), HasSubstr("merges[1]"));
  }
}

TEST(MergeRuleTest, SplitsAtTheFirstSpaceAfterTheFirstByte) {
  EXPECT_EQ(ParseMergeRule("Ġ the").right, "the");
  EXPECT_EQ(ParseMergeRule("  b").left, " ");
  EXPECT_EQ(ParseMergeRule("ab").right, "");
  EXPECT_EQ(ParseMergeRule("").left, "");
}

}  // namespace
}  // namespace sluice
