// What a mistyped name was probably meant to be.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

// The name that takes the fewest edits (a character more, less or other, two neighbours swapped) to become `found`, the
// first of equals. A name that begins with all of `found`, of 3 bytes or more, counts as one edit away. Empty if none is
// near: more than one edit, or one of every three characters, makes another word.
std::string NearestName(absl::string_view found, const std::vector<std::string>& names);

}  // namespace sluice
