// Text that comes in pieces, on a terminal whose lines end between words.
#pragma once

#include <string>

namespace sluice::cli {

// Columns that a character takes on a terminal: 0, 1 or 2.
int ColumnsOf(char32_t character);

// The beginning of a UTF-8 text that fits into so many columns. A tab counts as one.
std::string FitColumns(const std::string& text, int columns);

// A word is shown while it comes. If it turns out too long for its line it is taken back by an escape sequence and
// begins the next one. Where no spaces are (Chinese, a long URL) a line ends between any two wide characters, and a
// word longer than a line is left to the terminal. Not thread-safe.
class WordWrap {
 public:
  // What to write for `text`, which is UTF-8 without control characters but newline and tab, to a terminal of `width`
  // columns on which nothing else is written meanwhile. Begins at the start of a line.
  std::string Add(const std::string& text, int width);

 private:
  void AddCharacter(char32_t character, const std::string& bytes, int width, std::string* out);

  int column_ = 0;        // where the cursor is
  std::string word_;      // the bytes since the last place where a line may end
  int word_columns_ = 0;  // of word_
};

}  // namespace sluice::cli
