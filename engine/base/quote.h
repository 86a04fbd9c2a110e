// Text that somebody else wrote (a file's names and values, a request's), made fit for one line of an error or a log:
// everything that such a line shows of a file goes through here.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// `text` with C escapes for control characters, what is not UTF-8, characters that are not seen or turn the direction
// of a line, backslashes and single quotes; cut to 100 bytes, with "..." where there was more.
std::string Printable(absl::string_view text);

// The same in single quotes.
std::string Quote(absl::string_view text);

// "'a', 'b'": each quoted, at most 16 of them and about 500 bytes, with " and 3 more" where there are.
std::string QuoteList(absl::Span<const std::string> texts);

}  // namespace sluice
