#include "engine/text/jinja/builtins.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace sluice::jinja {

const Value* CallArguments::Keyword(absl::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<Value> Invoke(const Builtin& builtin, CallContext& context, const Value& self,
                             const CallArguments& arguments) {
  DepthGuard guard(context.budget());  // map('map', ...) calls itself
  SLUICE_RETURN_IF_ERROR(guard.status());
  SLUICE_RETURN_IF_ERROR(context.budget().Spend(1));
  if (builtin.variadic) return builtin.function({context, self, {}, arguments});
  const Value* bound[Builtin::kMaxParameters] = {};
  const absl::string_view* begin = builtin.parameters;
  const absl::string_view* end = std::find(begin, begin + Builtin::kMaxParameters, absl::string_view());
  const auto num_parameters = static_cast<size_t>(end - begin);
  if (arguments.positional.size() > num_parameters) {
    return absl::InvalidArgumentError(absl::StrCat("'", builtin.name, "' takes at most ", num_parameters,
                                                   " arguments, found ", arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    const absl::string_view* parameter = std::find(begin, end, name);
    if (parameter == end) {
      return absl::InvalidArgumentError(absl::StrCat("'", builtin.name, "' has no argument named '", name, "'"));
    }
    bound[parameter - begin] = &value;
  }
  for (size_t i = 0; i < builtin.num_required; ++i) {
    if (bound[i] != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", builtin.name, "' wants the argument '", builtin.parameters[i], "'"));
  }
  return builtin.function({context, self, absl::MakeConstSpan(bound, num_parameters), arguments});
}

}  // namespace sluice::jinja
