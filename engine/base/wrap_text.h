// Plain text set in lines, for helps.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// `text` with newlines in place of spaces, so that lines have at most `columns` bytes where its words allow it.
// Newlines of the text stay.
std::string WrapText(absl::string_view text, size_t columns);

}  // namespace sluice
