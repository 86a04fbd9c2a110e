// Text from files in one line of an error.
#include "engine/base/quote.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(Quote, PrintableTextStaysAsItIs) {
  EXPECT_EQ(Quote("model.layers.0"), "'model.layers.0'");
  EXPECT_EQ(Quote(""), "''");
  EXPECT_EQ(Quote("a \"b\""), "'a \"b\"'");
  EXPECT_EQ(Quote("<｜end▁of▁sentence｜> Ġthe 你好 😀"), "'<｜end▁of▁sentence｜> Ġthe 你好 😀'");
}

TEST(Quote, WhatWouldBreakALineOrATerminalIsEscaped) {
  EXPECT_EQ(Quote("\x1b[31m\n\r\t\x7f"), "'\\x1b[31m\\n\\r\\t\\x7f'");
  EXPECT_EQ(Quote(absl::string_view("a\0b", 3)), "'a\\x00b'");
  EXPECT_EQ(Quote("it's \\n"), "'it\\'s \\\\n'");
  EXPECT_EQ(Quote("\xc2\x9b"
                  "1m"),
            "'\\xc2\\x9b1m'");                                     // CSI as one character
  EXPECT_EQ(Quote("\xe2\x80\xa8"), "'\\xe2\\x80\\xa8'");           // line separator
  EXPECT_EQ(Quote("\xe2\x80\xae"), "'\\xe2\\x80\\xae'");           // right-to-left override
  EXPECT_EQ(Quote("\xef\xbb\xbf"), "'\\xef\\xbb\\xbf'");           // byte order mark
  EXPECT_EQ(Quote("\xf3\xa0\x81\x81"), "'\\xf3\\xa0\\x81\\x81'");  // tag
}

TEST(Quote, WhatIsNotUtf8IsEscapedByteByByte) {
  EXPECT_EQ(Quote("\xff\xc3"), "'\\xff\\xc3'");
  EXPECT_EQ(Quote("\xc0\x8a\xed\xa0\x80\xf4\x90\x80\x80"), "'\\xc0\\x8a\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80'");
  EXPECT_EQ(Quote("\xe2\x80"
                  "a"),
            "'\\xe2\\x80a'");
}

TEST(Quote, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(Quote(std::string(100, 'a')), "'" + std::string(100, 'a') + "'");
  EXPECT_EQ(Quote(std::string(101, 'a')), "'" + std::string(100, 'a') + "...'");
  EXPECT_EQ(Quote(std::string(99, 'a') + "é" + "b"), "'" + std::string(99, 'a') + "...'");
  EXPECT_EQ(Quote(std::string(10'000'000, '\n')).size(), 105u);
  EXPECT_LE(Quote(std::string(99, 'a') + "\n").size(), 105u);
}

TEST(Quote, ListsAreCutToo) {
  EXPECT_EQ(QuoteList(std::vector<std::string>{"a", "b\n"}), "'a', 'b\\n'");
  EXPECT_EQ(QuoteList({}), "");
  const std::string list = QuoteList(std::vector<std::string>(100, "k"));
  EXPECT_EQ(list.substr(list.size() - 11), "and 84 more") << list;
  EXPECT_LT(QuoteList(std::vector<std::string>(16, std::string(1000, 'k'))).size(), 550u);
}

}  // namespace
}  // namespace sluice
