// A small JSON file that nobody vouches for, as a tree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// The object that `text` holds. INVALID_ARGUMENT, beginning with `name`: not JSON, not an object, a zero byte (the
// parser would take it for the end and not look at what follows), nested deeper than 64 (writing a value into a message
// takes stack for every level).
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, absl::string_view name);

}  // namespace sluice
