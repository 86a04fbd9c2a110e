// Requests and answers between gRPC's bytes and protobuf's messages. The services take bytes, so that size, compression
// and form are judged, and told, before anything is built from them.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "server/options.h"

namespace sluice {

// Messages, texts, map entries and unknown fields of one request: WireSize::elements.
inline constexpr int64_t kMaxRequestElements = 1 << 16;

// Makes `request` of the bytes of a call, which it takes: gRPC would keep them until the call ends. `memory_bytes`:
// about what the request takes in memory. Leaves `request` empty after an error:
// INVALID_ARGUMENT (MALFORMED_REQUEST): see ScanWire, or not what its compression says.
// RESOURCE_EXHAUSTED (REQUEST_TOO_LARGE): over the limits; names the flag.
// UNIMPLEMENTED (COMPRESSION_NOT_ACCEPTED): compressed, and that is not accepted.
absl::Status ReadRequest(const grpc::ByteBuffer* bytes, const LimitOptions& limits,
                         google::protobuf::Message* request, int64_t* memory_bytes);

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message);

}  // namespace sluice
