// Regular expressions of Hugging Face's tokenizers in the syntax and with the Unicode tables of PCRE2.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Rewrites `pattern` so that PCRE2 10.42 or newer with UTF, UCP and MULTILINE matches what Hugging Face `tokenizers`
// 0.23 (Oniguruma, Unicode 16) matches:
//   \s \S      by Unicode's White_Space; PCRE2 also counts U+180E as space
//   \d \p{X}   with the characters that Unicode 15.0 to 16.0 added, which PCRE2 10.42 (Unicode 14) takes for
//   unassigned;
//              X is L, Lu, Ll, Lt, Lm, Lo, M, N, Nd, Nl, P, Pc, S or Han
//   [A&&[^B]]  by a lookahead, as PCRE2 has no intersection of classes
// INVALID_ARGUMENT names what is not known to mean the same in both and its place: other escapes and properties,
// complements (\S, \P{X}) inside a class, nested classes, groups that are not (?: (?i: (?= (?! (?<= (?<! (?> or plain,
// and quantifiers like {,3} or {3}+.
absl::StatusOr<std::string> ToPcreSyntax(absl::string_view pattern);

}  // namespace sluice
