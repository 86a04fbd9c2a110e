#include "engine/text/added_tokens.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(AddedTokensTest, LeftmostThenLongest) {
  AddedTokens tokens;
  tokens.Add("ABC", 1, /*is_control=*/true);
  tokens.Add("ABCD", 2, /*is_control=*/true);
  tokens.Add("BCDE", 3, /*is_control=*/true);
  const AddedTokens::Match match = tokens.Find("xABCDE", 0);
  EXPECT_EQ(match.id, 2);
  EXPECT_EQ(match.begin, 1u);
  EXPECT_EQ(match.end, 5u);
  EXPECT_EQ(tokens.Find("xABCDE", 2).id, 3);
  EXPECT_EQ(tokens.Find("xABCDE", 3).id, -1);
}

TEST(AddedTokensTest, ABeginningThatFailsDoesNotHideALaterMatch) {
  AddedTokens tokens;
  tokens.Add("<|end|>", 7, /*is_control=*/true);
  EXPECT_EQ(tokens.Find("<|e<|<|end|>", 0).begin, 5u);
}

TEST(AddedTokensTest, NothingIsFoundWithoutTokensAndEmptyOnesAreIgnored) {
  AddedTokens tokens;
  EXPECT_EQ(tokens.Find("abc", 0).id, -1);
  tokens.Add("", 1, /*is_control=*/true);
  EXPECT_EQ(tokens.Find("abc", 0).id, -1);
  EXPECT_EQ(tokens.Find("", 0).id, -1);
  tokens.Add("b", 2, /*is_control=*/true);
  tokens.Add("b", 3, /*is_control=*/true);
  EXPECT_EQ(tokens.Find("abc", 0).id, 2);
}

// The ids of the tokens in `text`, whose bytes from `begin` to `end` are trusted.
std::vector<int32_t> Cut(const AddedTokens& tokens, absl::string_view text, std::vector<TextRange> trusted) {
  std::vector<AddedTokens::Match> parts;
  tokens.Cut(text, trusted, &parts);
  std::vector<int32_t> ids;
  size_t end = 0;
  for (const AddedTokens::Match& part : parts) {
    EXPECT_EQ(part.begin, end);
    end = part.end;
    if (part.id >= 0) ids.push_back(part.id);
  }
  EXPECT_EQ(end, text.size());
  return ids;
}

TEST(AddedTokensTest, ControlTokensCountInTrustedTextOnlyOthersEverywhere) {
  using Ids = std::vector<int32_t>;
  AddedTokens tokens;
  tokens.Add("<c>", 1, /*is_control=*/true);
  tokens.Add("<b>", 2, /*is_control=*/false);
  tokens.Add("\n\n\n", 3, /*is_control=*/false);
  tokens.Add("[<b>]", 4, /*is_control=*/true);
  EXPECT_EQ(Cut(tokens, "<c><b>", {{0, 6}}), (Ids{1, 2}));
  EXPECT_EQ(Cut(tokens, "<c><b>", {}), (Ids{2}));
  EXPECT_EQ(Cut(tokens, "<c><b><c>", {{0, 3}}), (Ids{1, 2}));
  EXPECT_EQ(Cut(tokens, "<c><b><c>", {{3, 9}}), (Ids{2, 1}));
  EXPECT_EQ(Cut(tokens, "<c>", {{0, 2}, {2, 3}}), Ids{});  // parted
  // Others may lie across a border.
  EXPECT_EQ(Cut(tokens, "a\n\n\nb", {{0, 2}}), (Ids{3}));
  EXPECT_EQ(Cut(tokens, "a\n\n\nb", {{2, 3}}), (Ids{3}));
  // A control token that is just text hides what is inside of it, as in the reference.
  EXPECT_EQ(Cut(tokens, "[<b>]<b>", {}), (Ids{2}));
  EXPECT_EQ(Cut(tokens, "[<b>]<b>", {{0, 8}}), (Ids{4, 2}));
  EXPECT_EQ(Cut(tokens, "[<b>]<b>", {{1, 8}}), (Ids{2, 2}));
}

TEST(AddedTokensTest, MessagesNeverUndoTheTemplatesControlTokens) {
  using Ids = std::vector<int32_t>;
  AddedTokens tokens;
  tokens.Add("<c>", 1, /*is_control=*/true);
  tokens.Add("x<", 2, /*is_control=*/false);
  tokens.Add("<c>y", 3, /*is_control=*/false);
  tokens.Add("d<", 4, /*is_control=*/true);
  EXPECT_EQ(Cut(tokens, "ax<c>", {{0, 5}}), (Ids{2}));  // all of it the template's: leftmost wins
  EXPECT_EQ(Cut(tokens, "ax<c>", {{2, 5}}), (Ids{1}));
  EXPECT_EQ(Cut(tokens, "ax<", {{2, 3}}), (Ids{2}));
  EXPECT_EQ(Cut(tokens, "<c>y", {{0, 4}}), (Ids{3}));
  EXPECT_EQ(Cut(tokens, "<c>y", {{0, 3}}), (Ids{1}));
  EXPECT_EQ(Cut(tokens, "<c>y", {{3, 4}}), (Ids{3}));
  EXPECT_EQ(Cut(tokens, "d<c>", {{1, 4}}), (Ids{1}));  // half a control token hides nothing
}

}  // namespace
}  // namespace sluice
