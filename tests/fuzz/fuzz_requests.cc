// Bytes of a client's call, as gRPC hands them over, all the way to what the engine would get: whatever they are, they
// are refused with a reason or become a request of bounded size, and what this server reads protobuf reads, too.
//
// The first byte says which request, the second how it is compressed, the third how it is cut into slices.
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "google/protobuf/stubs/logging.h"
#include "server/calls/convert.h"
#include "server/calls/prompt.h"
#include "server/metrics.h"
#include "server/request_message.h"
#include "sluice/v1/admin.pb.h"
#include "sluice/v1/tokenizer.pb.h"
#include "tests/server/fake_model.h"

namespace sluice {
namespace {

constexpr int64_t kMaxBytes = 64 << 10;

grpc::ByteBuffer Bytes(const std::string& text, grpc_compression_algorithm compression, size_t slice) {
  std::vector<grpc_slice> slices;
  for (size_t i = 0; i < text.size(); i += slice) {
    slices.push_back(grpc_slice_from_copied_buffer(text.data() + i, std::min(slice, text.size() - i)));
  }
  grpc_byte_buffer* raw = grpc_raw_compressed_byte_buffer_create(slices.data(), slices.size(), compression);
  for (grpc_slice each : slices) grpc_slice_unref(each);
  grpc::ByteBuffer bytes;
  std::memcpy(static_cast<void*>(&bytes), &raw, sizeof raw);
  return bytes;
}

// A model that is never asked to generate.
const ServedModel& Model() {
  static Metrics& metrics = *new Metrics({.models = {"fake"}, .version = "0"});
  static const ServedModel& model = []() -> const ServedModel& {
    auto made = ServedModel::Create(FakeHost(std::make_shared<FakeModel>()), {"fake"}, 20, nullptr, &metrics,
                                    Clock::Real());
    SLUICE_CHECK(made.ok());
    return *made->release();
  }();
  return model;
}

template <class Request>
std::unique_ptr<Request> Read(const std::string& text, grpc_compression_algorithm compression, size_t slice) {
  auto request = std::make_unique<Request>();
  const grpc::ByteBuffer bytes = Bytes(text, compression, slice);
  int64_t memory_bytes = 0;
  const absl::Status status =
      ReadRequest(&bytes, {.max_request_bytes = kMaxBytes, .accept_compression = true}, request.get(), &memory_bytes);
  if (compression == GRPC_COMPRESS_NONE && text.size() <= size_t(kMaxBytes)) {
    Request expected;
    const bool readable = expected.ParseFromString(text);
    SLUICE_CHECK(readable || !status.ok());
    SLUICE_CHECK(status.ok() || !readable || status.code() == absl::StatusCode::kResourceExhausted);
  }
  if (!status.ok()) return nullptr;
  SLUICE_CHECK(int64_t(request->SpaceUsedLong()) <= 4096 + 3 * memory_bytes);
  return request;
}

template <class Request>
void Generate(const std::unique_ptr<Request>& request) {
  if (request == nullptr) return;
  CheckEnvelope(*request).IgnoreError();
  internal::CheckRequestId(request->request_id()).IgnoreError();
  const absl::Status options = CheckOptions(request->options(), Model());
  auto tokens = PromptTokens(*request, Model());
  if (!options.ok() || !tokens.ok()) return;
  ConvertGeneration(request->options(), *std::move(tokens), PromptField(*request), Model()).IgnoreError();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const bool quiet = (google::protobuf::SetLogHandler(nullptr), true);
  (void)quiet;
  if (size < 3) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const grpc_compression_algorithm algorithms[] = {GRPC_COMPRESS_NONE, GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP,
                                                   GRPC_COMPRESS_DEFLATE};
  const grpc_compression_algorithm compression = algorithms[data[1] % 4];
  const size_t slice = size_t(data[2]) + 1;
  switch (data[0] % 8) {
    case 0:
    case 1:
      Generate(Read<v1::CompleteRequest>(text, compression, slice));
      break;
    case 2:
    case 3:
      Generate(Read<v1::ChatRequest>(text, compression, slice));
      break;
    case 4:
      Read<v1::RenderChatRequest>(text, compression, slice);
      break;
    case 5:
      Read<v1::TokenizeRequest>(text, compression, slice);
      break;
    case 6:
      Read<v1::DetokenizeRequest>(text, compression, slice);
      break;
    default:
      Read<v1::GetServerInfoRequest>(text, compression, slice);
  }
  return 0;
}
