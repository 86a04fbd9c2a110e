#include "engine/text/jinja/template.h"

#include "engine/base/status_macros.h"
#include "engine/text/jinja/interpreter.h"
#include "engine/text/jinja/parser.h"

namespace sluice::jinja {

absl::StatusOr<Template> Template::Parse(absl::string_view source, const Limits& limits) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<const Ast> ast, jinja::Parse(source, limits));
  return Template(std::move(ast));
}

absl::StatusOr<Text> Template::Render(const std::vector<std::pair<std::string, Value>>& variables,
                                      absl::CivilSecond now, Heap& heap) const {
  Interpreter interpreter(*ast_, CallContext{heap, now});
  for (const auto& [name, value] : variables) interpreter.SetVariable(name, value);
  TextBuilder out(heap.budget(), heap.budget().limits().max_output_bytes);
  SLUICE_RETURN_IF_ERROR(interpreter.Run(out));
  return std::move(out).Finish();
}

}  // namespace sluice::jinja
