// Regular expressions of Hugging Face's tokenizers in the syntax and with the Unicode tables of PCRE2.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Rewrites `pattern` so that PCRE2 10.42 or newer with UTF and UCP matches what Hugging Face `tokenizers` 0.23 matches:
//   \s and \S     by Unicode's White_Space; PCRE2 also counts U+180E as space
//   \p{L} \p{N}   with the letters and numbers of Unicode 15.0 to 16.0, which PCRE2 10.42 (Unicode 14) takes for
//   unassigned
// Everything else stays as it is. INVALID_ARGUMENT: \S inside a class, or a property whose additions are not listed
// here.
absl::StatusOr<std::string> ToPcreSyntax(absl::string_view pattern);

}  // namespace sluice
