// How Python shows values: str() and repr().
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

// repr(float): the shortest digits that read back the same ("0.1", "1.0", "1e-07", "inf").
std::string FormatFloat(double d);

// str(value) appended to `out`: a string as it is, undefined as nothing, everything else as repr.
absl::Status AppendStr(const Value& value, Heap& heap, TextBuilder& out);
// repr(value) appended to `out`; ascii(value) if `ascii`.
absl::Status AppendRepr(const Value& value, Heap& heap, TextBuilder& out, bool ascii = false);

// str(value) as a string value; a string is returned itself.
absl::StatusOr<Value> ToStr(const Value& value, Heap& heap);

}  // namespace sluice::jinja
