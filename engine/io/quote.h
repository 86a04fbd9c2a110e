// Names from files, made fit for an error message.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// `text` in single quotes, unprintable bytes escaped as in C, cut after 80 bytes.
std::string Quote(absl::string_view text);

}  // namespace sluice
