// A small JSON file that nobody vouches for, as a tree.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// The object that `text` holds. Python writes numbers that JSON has no words for: NaN, Infinity and -Infinity become
// strings of that name, so that they do no harm where nobody asks for them and are a wrong type where somebody does.
// INVALID_ARGUMENT, beginning with `name`: not JSON (with line, column and the key that was being read), not an object,
// a zero byte (the parser would take it for the end and not look at what follows), nested deeper than 64 (writing a
// value into a message takes stack for every level).
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, absl::string_view name);

// "line 3, column 14" of byte `offset` of `text`; both from 1, columns in characters.
std::string LineAndColumn(absl::string_view text, size_t offset);

// What the parser says of a syntax error, fit for a message: "invalid literal, found 'nul,'". `last_token` is what it
// read last.
std::string JsonProblem(const nlohmann::json::exception& error, absl::string_view last_token);

}  // namespace sluice
