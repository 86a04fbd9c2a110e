// A sandboxed Jinja template: parsed once, rendered any number of times. It can compute nothing but text from the
// values it is given, within Limits.
//
// Semantics are those of Jinja2 3.1 as Hugging Face sets it up for chat templates: trim_blocks and lstrip_blocks,
// lenient undefined, break and continue, {% generation %}, the functions raise_exception and strftime_now, tojson like
// json.dumps. Differences: a template may change lists and dicts that it made itself by their methods (the original
// refuses all; those of the request it refuses too); a filter or test that is not known is an error when it is reached,
// where the original may refuse the whole template; and left out, being of no use to a prompt, are {% autoescape %},
// what needs other templates, the filters pprint, random, urlize and wordwrap, and lipsum().
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
  // render builds; `now` is what strftime_now shows. INVALID_ARGUMENT with the message of raise_exception;
  // FAILED_PRECONDITION "chat template, line L: ..." for an operation that failed; RESOURCE_EXHAUSTED naming the limit
  // that was reached. Thread-safe for different heaps.
  absl::StatusOr<Text> Render(const std::vector<std::pair<std::string, Value>>& variables, absl::CivilSecond now,
                              Heap& heap) const;

  // Filters and tests that there are none of, each with its line and column: reaching one ends a render.
  const std::vector<std::string>& warnings() const { return ast_->warnings; }
  // Whether the template uses this name as a variable (or gives it to one of its own).
  bool Names(absl::string_view variable) const { return ast_->identifiers.contains(variable); }

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}

  std::shared_ptr<const Ast> ast_;
};

}  // namespace sluice::jinja
