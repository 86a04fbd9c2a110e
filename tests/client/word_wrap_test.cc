#include "client/cli/word_wrap.h"

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "client/cli/live_line.h"

namespace sluice::cli {
namespace {

// A terminal that knows what WordWrap and LiveLine write: characters, newline, return, and four escape sequences. Text
// that reaches the margin goes on in the next row.
class Screen {
 public:
  explicit Screen(int width) : width_(width) {}

  void Write(const std::string& text) {
    for (size_t i = 0; i < text.size();) {
      if (text[i] == '\033') {
        size_t end = i + 2;
        while (!std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
        Escape(text[end], end > i + 2 ? std::stoi(text.substr(i + 2, end - i - 2)) : 1);
        i = end + 1;
      } else if (text[i] == '\n' || text[i] == '\r') {
        if (text[i] == '\n') ++row_;
        column_ = 0;
        i += 1;
      } else {
        size_t length = 1;
        while (i + length < text.size() && (text[i + length] & 0xC0) == 0x80) ++length;
        Put(text.substr(i, length), length >= 3 ? 2 : text[i] == '\xCC' ? 0 : 1);
        i += length;
      }
    }
  }

  // Rows without the spaces at their ends.
  std::vector<std::string> Rows() const {
    std::vector<std::string> rows;
    for (const auto& cells : rows_) {
      std::string row;
      for (const std::string& cell : cells) row += cell;
      row.erase(row.find_last_not_of(' ') + 1);
      rows.push_back(row);
    }
    return rows;
  }

 private:
  void Put(const std::string& character, int columns) {
    if (columns == 0) {  // onto the character before
      rows_[row_][size_t(column_ - 1)] += character;
      return;
    }
    if (column_ + columns > width_) {
      ++row_;
      column_ = 0;
    }
    rows_.resize(std::max(rows_.size(), row_ + 1));
    auto& cells = rows_[row_];
    cells.resize(std::max(cells.size(), size_t(column_ + columns)), " ");
    cells[size_t(column_)] = character;
    if (columns == 2) cells[size_t(column_ + 1)] = "";
    column_ += columns;
  }

  void Escape(char what, int n) {
    rows_.resize(std::max(rows_.size(), row_ + 1));
    if (what == 'D') column_ = std::max(0, column_ - n);
    if (what == 'A') row_ -= size_t(n);
    if (what == 'K' || what == 'J') rows_[row_].resize(std::min(rows_[row_].size(), size_t(column_)));
    if (what == 'J') rows_.resize(row_ + 1);
  }

  const int width_;
  size_t row_ = 0;
  int column_ = 0;
  std::vector<std::vector<std::string>> rows_ = std::vector<std::vector<std::string>>(1);
};

using Rows = std::vector<std::string>;

// What stands on a terminal after `text` came in pieces of so many characters.
Rows Shown(const std::string& text, int width, size_t piece) {
  Screen screen(width);
  WordWrap wrap;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    for (size_t n = 0; n < piece && end < text.size(); ++n) {
      ++end;
      while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    }
    screen.Write(wrap.Add(text.substr(i, end - i), width));
    i = end;
  }
  return screen.Rows();
}

void ExpectShown(const std::string& text, int width, const Rows& rows) {
  for (size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, text.size()}) {
    EXPECT_EQ(Shown(text, width, piece), rows) << text << " in pieces of " << piece;
  }
}

TEST(WordWrap, LinesEndBetweenWordsHoweverTheTextComes) {
  ExpectShown("the quick brown fox jumps over the lazy dog", 12,
              {"the quick", "brown fox", "jumps over", "the lazy", "dog"});
  ExpectShown("one two", 80, {"one two"});
}

TEST(WordWrap, ASpaceAtTheEdgeBecomesTheNewLine) {
  ExpectShown("abcd efgh ijk", 6, {"abcd", "efgh", "ijk"});
  ExpectShown("abcde fgh", 6, {"abcde", "fgh"});
  ExpectShown("abcde  fgh", 6, {"abcde", " fgh"});
}

TEST(WordWrap, NewlinesAndIndentationOfTheTextStay) {
  ExpectShown("a:\n    if x:\n\n        y", 20, {"a:", "    if x:", "", "        y"});
}

TEST(WordWrap, AWordLongerThanALineIsLeftToTheTerminal) {
  ExpectShown("see https://example.com/a/b ok", 10, {"see", "https://ex", "ample.com/", "a/b ok"});
  ExpectShown("0123456789 x", 10, {"0123456789", "x"});
  ExpectShown(std::string(25, 'x') + " y", 10, {"xxxxxxxxxx", "xxxxxxxxxx", "xxxxx y"});
}

TEST(WordWrap, WideCharactersBreakAnywhere) {
  ExpectShown("世界世界世界世", 9, {"世界世界", "世界世"});
  ExpectShown("ab 世界世界", 8, {"ab 世界", "世界"});
}

TEST(WordWrap, MarksTakeNoColumn) {
  const std::string e = "e\xCC\x81";  // e with a combining acute accent
  ExpectShown("ab " + e + e + e + "d x", 8, {"ab " + e + e + e + "d", "x"});
  ExpectShown("abc " + e + e + e + "d x", 7, {"abc", e + e + e + "d x"});
}

TEST(WordWrap, ColumnsOfCharacters) {
  EXPECT_EQ(ColumnsOf(U'a'), 1);
  EXPECT_EQ(ColumnsOf(U'\u00e9'), 1);
  EXPECT_EQ(ColumnsOf(U'\u4e16'), 2);
  EXPECT_EQ(ColumnsOf(U'\uff21'), 2);
  EXPECT_EQ(ColumnsOf(U'\U0001f44b'), 2);
  EXPECT_EQ(ColumnsOf(U'\u0301'), 0);
  EXPECT_EQ(ColumnsOf(U'\u200b'), 0);
}

TEST(WordWrap, FitColumnsNeverSplitsACharacter) {
  EXPECT_EQ(FitColumns("abc", 2), "ab");
  EXPECT_EQ(FitColumns("世界", 3), "世");
  EXPECT_EQ(FitColumns("a世b", 4), "a世b");
  EXPECT_EQ(FitColumns("", 0), "");
  EXPECT_EQ(FitColumns("a", 0), "");
}

TEST(LiveLine, IsAlwaysOneRow) {
  for (int width : {20, 40, 80, 120}) {
    Screen screen(width);
    LiveLine line;
    screen.Write("$ sluice load\n");
    for (int i = 0; i < 5; ++i) screen.Write(line.Draw(std::string(50, char('a' + i)) + std::to_string(i), width));
    EXPECT_EQ(screen.Rows(), (Rows{"$ sluice load", FitColumns(std::string(50, 'e') + "4", width - 1)})) << width;
    screen.Write(line.Clear(width));
    EXPECT_EQ(screen.Rows(), (Rows{"$ sluice load", ""})) << width;
  }
}

TEST(LiveLine, GoesWholeWhenTheTerminalHasBecomeNarrower) {
  LiveLine line;
  line.Draw(std::string(79, 'x'), 80);
  Screen narrow(30);  // has broken it into three rows
  narrow.Write("before\n" + std::string(79, 'x'));
  narrow.Write(line.Draw("short", 30));
  EXPECT_EQ(narrow.Rows(), (Rows{"before", "short"}));
}

}  // namespace
}  // namespace sluice::cli
