#include "client/cli/live_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cli/word_wrap.h"

namespace sluice::cli {

std::string LiveLine::Draw(const std::string& text, int width) {
  // In the last column the cursor of some terminals is already on the next row.
  const std::string shown = FitColumns(text, std::max(width - 1, 1));
  const std::string result = Clear(width) + shown;
  shown_columns_ = 0;
  for (unsigned char c : shown) shown_columns_ += (c & 0xC0) != 0x80 ? 1 : 0;
  return result;
}

std::string LiveLine::Clear(int width) {
  const int rows_above = std::max(shown_columns_ - 1, 0) / std::max(width, 1);
  shown_columns_ = 0;
  return rows_above > 0 ? absl::StrCat("\r\033[", rows_above, "A\033[J") : "\r\033[K";
}

}  // namespace sluice::cli
