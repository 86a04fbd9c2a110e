#include "engine/base/wrap_text.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(WrapText, LinesEndBetweenWords) {
  EXPECT_EQ(WrapText("the quick brown fox", 10), "the quick\nbrown fox");
  EXPECT_EQ(WrapText("the quick brown fox", 9), "the quick\nbrown fox");
  EXPECT_EQ(WrapText("the quick brown fox", 8), "the\nquick\nbrown\nfox");
  EXPECT_EQ(WrapText("the quick brown fox", 100), "the quick brown fox");
  EXPECT_EQ(WrapText("", 10), "");
}

TEST(WrapText, LongWordsAndNewlinesStay) {
  EXPECT_EQ(WrapText("a https://example.com/long b", 10), "a\nhttps://example.com/long\nb");
  EXPECT_EQ(WrapText("one\ntwo three", 5), "one\ntwo\nthree");
}

}  // namespace
}  // namespace sluice
