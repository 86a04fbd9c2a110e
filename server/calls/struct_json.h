// google.protobuf.Struct as JSON text that is the same for equal values: on the wire its keys have no order, and its
// numbers are doubles.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/struct.pb.h"

namespace sluice {

// Keys in the order of their bytes, at every level. A number without a fraction, up to 2^53 on either side of zero, is
// an integer ("1", "1000000000000000"); any other is written as Python's repr() has it ("0.1", "1e+16").
// INVALID_ARGUMENT naming the place below `field` of a number that JSON cannot say, or of a value of no kind.
absl::StatusOr<std::string> StructAsJson(absl::string_view field, const google::protobuf::Struct& value);

}  // namespace sluice
