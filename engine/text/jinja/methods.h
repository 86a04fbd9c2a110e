// The methods by the type of their object; builtins.h finds one by its name.
#pragma once

#include "absl/types/span.h"
#include "engine/text/jinja/builtins.h"

namespace sluice::jinja {

absl::Span<const Builtin> StringMethods();
absl::Span<const Builtin> TupleMethods();
absl::Span<const Builtin> ListMethods();
absl::Span<const Builtin> DictMethods();
// Those that change their object: not for what belongs to the request.
absl::Span<const Builtin> ListChanges();
absl::Span<const Builtin> DictChanges();

}  // namespace sluice::jinja
