// A sandboxed Jinja template: parsed once, rendered any number of times. It can compute nothing but text from the
// values it is given, within Limits.
//
// Semantics are those of Jinja2 3.1 as Hugging Face sets it up for chat templates: trim_blocks and lstrip_blocks,
// lenient undefined, break and continue, {% generation %}, the functions raise_exception and strftime_now, tojson like
// json.dumps. Two differences: lists and dicts may be changed by their methods (the original refuses), and what the
// original only notices while compiling (an unknown filter, say) is an error here when it is reached.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

class Template {
 public:
  // INVALID_ARGUMENT "chat template, line L, column C: ..." for a syntax error; RESOURCE_EXHAUSTED for one that is too
  // long.
  static absl::StatusOr<Template> Parse(absl::string_view source, const Limits& limits = {});

  // The output, with the ranges that came from values of user origin. `variables` belong to `heap`, as does what the
  // render builds; `now` is what strftime_now shows. INVALID_ARGUMENT with the message of raise_exception, or naming
  // the line of an operation that failed; RESOURCE_EXHAUSTED naming the limit that was reached. Thread-safe for
  // different heaps.
  absl::StatusOr<Text> Render(const std::vector<std::pair<std::string, Value>>& variables, absl::CivilSecond now,
                              Heap& heap) const;

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}

  std::shared_ptr<const Ast> ast_;
};

}  // namespace sluice::jinja
