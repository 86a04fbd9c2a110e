// A walk over a request in protobuf's wire format, before anything is built from it: two bytes on the wire may become an
// object of a hundred in memory, and protobuf's own parser neither counts them nor says what it does not understand.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace sluice {

// Messages inside each other that protobuf's parser takes.
inline constexpr int kMaxWireDepth = 100;

// Of what a request holds. An element is whatever becomes an object of its own: a message, an entry of a map, a text, a
// field that this server does not know. Numbers in lists are none.
struct WireSize {
  int64_t elements = 0;
  int64_t numbers = 0;  // in lists; each takes up to eight bytes
};

// Walks over the `num_bytes` bytes of `in`, which are to be a `type`. What passes is what protobuf parses.
// INVALID_ARGUMENT (MALFORMED_REQUEST): cut, garbled, nested too deep, or a text that is not UTF-8; names the field.
// RESOURCE_EXHAUSTED (REQUEST_TOO_LARGE): more than `max_elements`.
absl::Status ScanWire(google::protobuf::io::ZeroCopyInputStream* in, int64_t num_bytes,
                      const google::protobuf::Descriptor* type, int64_t max_elements, WireSize* size);

}  // namespace sluice
