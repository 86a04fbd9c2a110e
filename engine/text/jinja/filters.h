// What the filters' files share; builtins.h finds a filter by its name.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

absl::Span<const Builtin> TextFilters();
absl::Span<const Builtin> NumberFilters();
absl::Span<const Builtin> ListFilters();

// Whether an argument is there and true; is there and not none.
inline bool Flag(const Invocation& call, size_t i) { return call.args[i] != nullptr && IsTrue(*call.args[i]); }
inline bool Given(const Invocation& call, size_t i) {
  return call.args[i] != nullptr && !call.args[i]->is(Kind::kNone);
}

// item.a.b.0 for the attribute "a.b.0" (or an integer); the item itself for no attribute.
absl::StatusOr<Value> Lookup(Value item, const Value* attribute, Heap& heap);

}  // namespace sluice::jinja
