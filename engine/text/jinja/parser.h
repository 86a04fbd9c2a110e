// Jinja's grammar: see the statements and expressions of ast.h. Not supported, and named in the error: what needs other
// templates (include, import, from, extends), and autoescape.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/budget.h"

namespace sluice::jinja {

// INVALID_ARGUMENT with line and column for a syntax error or a tree deeper than Limits::max_nesting;
// RESOURCE_EXHAUSTED for a source that is too long.
absl::StatusOr<std::unique_ptr<const Ast>> Parse(absl::string_view source, const Limits& limits);

}  // namespace sluice::jinja
