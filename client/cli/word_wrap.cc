#include "client/cli/word_wrap.h"

#include <utf8proc.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

// Calls on_character(code point, its bytes) for each; a byte that begins no character counts as one of its own.
template <class F>
void ForEachCharacter(const std::string& text, F on_character) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = 0;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
    utf8proc_ssize_t length = utf8proc_iterate(bytes, utf8proc_ssize_t(text.size() - at), &character);
    if (length <= 0) {
      length = 1;
      character = 0xFFFD;
    }
    on_character(char32_t(character), text.substr(at, size_t(length)));
    at += size_t(length);
  }
}

}  // namespace

int ColumnsOf(char32_t character) {
  // Part of the text, invisible where no line breaks there.
  constexpr char32_t kSoftHyphen = 0xAD;
  if (character == kSoftHyphen) return 1;
  return std::clamp(utf8proc_charwidth(utf8proc_int32_t(character)), 0, 2);
}

std::string FitColumns(const std::string& text, int columns) {
  std::string fitting;
  bool full = false;
  ForEachCharacter(text, [&](char32_t character, const std::string& bytes) {
    columns -= character == U'\t' ? 1 : ColumnsOf(character);
    full = full || columns < 0;
    if (!full) fitting += bytes;
  });
  return fitting;
}

std::string WordWrap::Add(const std::string& text, int width) {
  std::string out;
  ForEachCharacter(text,
                   [&](char32_t character, const std::string& bytes) { AddCharacter(character, bytes, width, &out); });
  return out;
}

void WordWrap::AddCharacter(char32_t character, const std::string& bytes, int width, std::string* out) {
  // The last column stays free: behind a character there terminals disagree about where the cursor is.
  const int end = std::max(width - 1, 1);
  const auto begin_word = [&] {
    word_.clear();
    word_columns_ = 0;
  };
  const auto new_line = [&] {
    *out += "\n";
    column_ = 0;
    begin_word();
  };
  if (character == U'\n') return new_line();
  if (character == U' ' || character == U'\t') {
    const int columns = character == U'\t' ? 8 - column_ % 8 : 1;
    if (column_ + columns > end) return new_line();  // in its place
    *out += bytes;
    column_ += columns;
    return begin_word();
  }
  const int columns = ColumnsOf(character);
  if (column_ + columns > end) {
    if (word_columns_ == column_ &&
        columns < 2) {  // longer than a line: the terminal breaks it, so it can be copied whole
      if (column_ + columns > width) column_ = word_columns_ = 0;
    } else if (columns == 2) {
      new_line();
    } else {
      if (word_columns_ > 0) absl::StrAppend(out, "\033[", word_columns_, "D\033[K");
      const std::string word = word_;
      const int word_columns = word_columns_;
      new_line();
      *out += word;
      column_ = word_columns_ = word_columns;
      word_ = word;
    }
  }
  *out += bytes;
  column_ += columns;
  if (columns == 2) return begin_word();
  if (columns == 0 && word_.empty()) return;  // belongs to the character before
  word_ += bytes;
  word_columns_ += columns;
}

}  // namespace sluice::cli
