#include "engine/text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

using absl::string_view;

std::string Lossy(string_view bytes, size_t portion) {
  Utf8Assembler assembler;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += portion) assembler.Push(bytes.substr(i, portion), &out);
  assembler.Flush(&out);
  return out;
}

TEST(Utf8Test, EveryScalarValueSurvivesTheRoundTrip) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_EQ(FindInvalidUtf8(text), string_view::npos);
    ASSERT_EQ(Utf8Length(text[0]), text.size());
    ASSERT_EQ(DecodeUtf8(text), c);
  }
}

TEST(Utf8Test, TheFirstBrokenByteIsFound) {
  struct Case {
    string_view text;
    size_t offset;
  };
  const Case cases[] = {
      {"ab\xFF", 2},
      {"\x80", 0},
      {"a\xC3", 1},
      {"\xC0\x80", 0},
      {"\xC1\xBF", 0},
      {"\xE0\x9F\xBF", 0},
      {"\xED\xA0\x80", 0},
      {"\xF0\x8F\xBF\xBF", 0},
      {"\xF4\x90\x80\x80", 0},
      {"\xF5\x80\x80\x80", 0},
      {"é\xE4\xB8", 2},
  };
  for (const Case& c : cases) EXPECT_EQ(FindInvalidUtf8(c.text), c.offset) << c.text;
  EXPECT_EQ(FindInvalidUtf8(string_view("a\0é中😀\xED\x9F\xBF\xF4\x8F\xBF\xBF", 19)), string_view::npos);
}

TEST(Utf8Test, IllFormedBytesAreReplacedByMaximalSubparts) {
  struct Case {
    string_view bytes;
    string_view text;
  };
  // The table of Unicode 16, section 3.9, among others.
  const Case cases[] = {
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xE4\xB8\xE4\xB8\xAD", "\uFFFD中"},
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
      {"a\xC3", "a\uFFFD"},
  };
  for (const Case& c : cases) {
    for (size_t portion = 1; portion <= c.bytes.size(); ++portion)
      EXPECT_EQ(Lossy(c.bytes, portion), c.text) << portion;
  }
}

TEST(Utf8Test, PassesCharactersOnWithTheirLastByte) {
  Utf8Assembler assembler;
  std::vector<std::string> pushes;
  for (const char c : string_view("\xF0\x9F\x98\x80\xF0\x9F"
                                  "a\xE4\xB8"))
    assembler.Push(string_view(&c, 1), &pushes.emplace_back());
  EXPECT_EQ(pushes, (std::vector<std::string>{"", "", "", "😀", "", "",
                                              "\uFFFD"
                                              "a",
                                              "", ""}));
  std::string rest;
  assembler.Flush(&rest);
  EXPECT_EQ(rest, "\uFFFD");
}

}  // namespace
}  // namespace sluice
