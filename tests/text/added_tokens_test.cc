#include "engine/text/added_tokens.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(AddedTokensTest, LeftmostThenLongest) {
  AddedTokens tokens;
  tokens.Add("ABC", 1);
  tokens.Add("ABCD", 2);
  tokens.Add("BCDE", 3);
  const AddedTokens::Match match = tokens.Find("xABCDE", 0);
  EXPECT_EQ(match.id, 2);
  EXPECT_EQ(match.begin, 1u);
  EXPECT_EQ(match.end, 5u);
  EXPECT_EQ(tokens.Find("xABCDE", 2).id, 3);
  EXPECT_EQ(tokens.Find("xABCDE", 3).id, -1);
}

TEST(AddedTokensTest, ABeginningThatFailsDoesNotHideALaterMatch) {
  AddedTokens tokens;
  tokens.Add("<|end|>", 7);
  EXPECT_EQ(tokens.Find("<|e<|<|end|>", 0).begin, 5u);
}

TEST(AddedTokensTest, NothingIsFoundWithoutTokensAndEmptyOnesAreIgnored) {
  AddedTokens tokens;
  EXPECT_EQ(tokens.Find("abc", 0).id, -1);
  tokens.Add("", 1);
  EXPECT_EQ(tokens.Find("abc", 0).id, -1);
  EXPECT_EQ(tokens.Find("", 0).id, -1);
  tokens.Add("b", 2);
  tokens.Add("b", 3);
  EXPECT_EQ(tokens.Find("abc", 0).id, 2);
}

}  // namespace
}  // namespace sluice
