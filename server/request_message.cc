#include "server/request_message.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/calls/status.h"
#include "server/wire_scan.h"

namespace sluice {
namespace {

// An element in memory, roughly: the object, its place in a list, what the allocator adds.
constexpr int64_t kElementBytes = 160;
constexpr int64_t kNumberBytes = 8;

absl::Status TooLarge(int64_t max_bytes) {
  return CallError(absl::StatusCode::kResourceExhausted, kReasonRequestTooLarge,
                   absl::StrCat("the request is larger than this server takes (--max-request-bytes ", max_bytes, ")"));
}

class BytesReader final : public grpc::ProtoBufferReader {
 public:
  using grpc::ProtoBufferReader::ProtoBufferReader;
  // What the bytes still are compressed by: the server tells gRPC to leave them as they came.
  grpc_compression_algorithm compression() { return reader()->buffer_in->data.raw.compression; }
};

// zlib's state for one gzip or deflate ("zlib") stream, whichever it is.
class Inflater {
 public:
  Inflater() { ok_ = inflateInit2(&state_, kWindowBits + kDetectFormat) == Z_OK; }
  ~Inflater() { inflateEnd(&state_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool ok() const { return ok_; }
  z_stream& state() { return state_; }

 private:
  static constexpr int kWindowBits = 15, kDetectFormat = 32;

  z_stream state_{};
  bool ok_ = false;
};

// At most `max_bytes` come into being, however many the message would become.
absl::StatusOr<std::string> Inflate(google::protobuf::io::ZeroCopyInputStream* compressed, int64_t max_bytes) {
  const auto malformed = [] {
    return CallError(absl::StatusCode::kInvalidArgument, kReasonMalformedRequest,
                     "the request is marked as compressed, but what it holds is not gzip or deflate, or is cut");
  };
  Inflater inflater;
  if (!inflater.ok()) return absl::ResourceExhaustedError("no memory to inflate a request");
  z_stream& state = inflater.state();
  std::string message;
  std::vector<char> piece(64 << 10);
  int result = Z_OK;
  const void* data = nullptr;
  int size = 0;
  while (compressed->Next(&data, &size)) {
    // Nothing may follow the end.
    if (result == Z_STREAM_END && size > 0) return malformed();
    state.next_in = static_cast<Bytef*>(const_cast<void*>(data));
    state.avail_in = uInt(size);
    do {
      state.next_out = reinterpret_cast<Bytef*>(piece.data());
      state.avail_out = uInt(piece.size());
      result = inflate(&state, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return malformed();
      const size_t inflated = piece.size() - state.avail_out;
      if (int64_t(message.size() + inflated) > max_bytes) return TooLarge(max_bytes);
      message.append(piece.data(), inflated);
    } while (result == Z_OK && (state.avail_in > 0 || state.avail_out == 0));
    if (state.avail_in > 0) return malformed();
  }
  if (result != Z_STREAM_END) return malformed();
  return message;
}

// Twice the same bytes: `open` begins again.
template <class Open>
absl::Status Parse(const Open& open, int64_t num_bytes, google::protobuf::Message* request, int64_t* memory_bytes) {
  WireSize size;
  {
    auto in = open();
    SLUICE_RETURN_IF_ERROR(ScanWire(&in, num_bytes, request->GetDescriptor(), kMaxRequestElements, &size));
  }
  auto in = open();
  if (!request->ParseFromZeroCopyStream(&in)) {
    request->Clear();
    return CallError(absl::StatusCode::kInvalidArgument, kReasonMalformedRequest,
                     absl::StrCat("the request is not a ", request->GetDescriptor()->full_name()));
  }
  *memory_bytes = num_bytes + kElementBytes * size.elements + kNumberBytes * size.numbers;
  return absl::OkStatus();
}

absl::string_view Name(grpc_compression_algorithm algorithm) {
  const char* name = nullptr;
  return grpc_compression_algorithm_name(algorithm, &name) != 0 ? name : "?";
}

}  // namespace

absl::Status ReadRequest(const grpc::ByteBuffer* bytes, const LimitOptions& limits,
                         google::protobuf::Message* request, int64_t* memory_bytes) {
  // gRPC made it, not constant, for this one reader.
  grpc::ByteBuffer taken;
  taken.Swap(const_cast<grpc::ByteBuffer*>(bytes));
  if (!taken.Valid()) {
    return CallError(absl::StatusCode::kInvalidArgument, kReasonMalformedRequest,
                     "the call has no request: the client closed it before it sent one");
  }
  const int64_t num_bytes = int64_t(taken.Length());
  if (num_bytes > limits.max_request_bytes) return TooLarge(limits.max_request_bytes);
  const grpc_compression_algorithm compression = BytesReader(&taken).compression();
  if (compression == GRPC_COMPRESS_NONE || num_bytes == 0) {
    return Parse([&] { return grpc::ProtoBufferReader(&taken); }, num_bytes, request, memory_bytes);
  }
  if (!limits.accept_compression) {
    return CallError(absl::StatusCode::kUnimplemented, kReasonCompressionNotAccepted,
                     absl::StrCat("the request is compressed (", Name(compression),
                                  "), which this server does not accept (--accept-compression); send it as it is"));
  }
  grpc::ProtoBufferReader compressed(&taken);
  SLUICE_ASSIGN_OR_RETURN(const std::string message, Inflate(&compressed, limits.max_request_bytes));
  return Parse([&] { return google::protobuf::io::ArrayInputStream(message.data(), int(message.size())); },
               int64_t(message.size()), request, memory_bytes);
}

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::MessageLite>(message, &bytes, &own);
  SLUICE_CHECK(status.ok());  // no answer comes near 2 GiB
  return bytes;
}

}  // namespace sluice
