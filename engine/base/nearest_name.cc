#include "engine/base/nearest_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"

namespace sluice {
namespace {

// Optimal string alignment distance, by rows: `before_last` and `last` are the two above the one that is made.
size_t Edits(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestName(absl::string_view found, const std::vector<std::string>& names) {
  constexpr size_t kLongestName = 64;  // the work grows with the product of both lengths
  if (found.size() > kLongestName) return "";
  std::string nearest;
  // Another letter in place of a name's only one makes another name.
  const size_t letters = found.size() - size_t(std::count(found.begin(), found.end(), '-'));
  size_t fewest = std::min(std::max<size_t>(1, found.size() / 3) + 1, letters);
  for (const std::string& name : names) {
    if (name.size() > kLongestName) continue;
    const bool begun = found.size() >= 3 && absl::StartsWith(name, found) && name != found;
    const size_t edits = begun ? 1 : Edits(found, name);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = name;
  }
  return nearest;
}

}  // namespace sluice
