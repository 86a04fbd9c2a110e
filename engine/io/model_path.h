// The path that a user gives for a model.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// What can be told before anything is read: one sentence that begins with the path and says what to give instead.
// NOT_FOUND: nothing is there (a name or an address of a model that is elsewhere is recognised, and a mistyped file
// name gets the nearest one of its folder). Also a folder without config.json; its GGUF files are named.
absl::Status CheckModelPath(const std::string& path);

}  // namespace sluice
