#include "engine/base/wrap_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {

std::string WrapText(absl::string_view text, size_t columns) {
  std::string result;
  for (absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    if (!result.empty()) result += '\n';
    size_t column = 0;
    for (absl::string_view word : absl::StrSplit(paragraph, ' ', absl::SkipEmpty())) {
      const bool fits = column + 1 + word.size() <= columns;
      if (column > 0) result += fits ? ' ' : '\n';
      column = (column > 0 && fits ? column + 1 : 0) + word.size();
      absl::StrAppend(&result, word);
    }
  }
  return result;
}

}  // namespace sluice
