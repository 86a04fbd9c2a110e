// Requests that no client library would send, over real connections: each is told what is wrong with it, costs little, and
// no one else notices.
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <gmock/gmock.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <cstring>

#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class HostileRequestsTest : public ServerTest {
 protected:
  // A call with these bytes as its request; without any if `send` is false. `compression`: what the bytes are said to be.
  grpc::Status Call(const std::string& method, const std::string& bytes,
                    grpc_compression_algorithm compression = GRPC_COMPRESS_NONE, bool send = true) {
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes.data(), bytes.size());
    grpc_byte_buffer* raw = grpc_raw_compressed_byte_buffer_create(&slice, 1, compression);
    grpc_slice_unref(slice);
    grpc::ByteBuffer request;
    std::memcpy(static_cast<void*>(&request), &raw, sizeof raw);

    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    if (compression != GRPC_COMPRESS_NONE) context.set_compression_algorithm(compression);
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel_);
    const auto call = stub.PrepareCall(&context, method, &queue);
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
    };
    call->StartCall(nullptr);
    wait();
    if (send) {
      call->WriteLast(request, grpc::WriteOptions(), nullptr);
    } else {
      call->WritesDone(nullptr);
    }
    wait();
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    return status;
  }

  static const std::vector<std::string>& Methods() {
    static const std::vector<std::string> methods = {
        "/sluice.v1.GenerationService/Complete",     "/sluice.v1.GenerationService/StreamComplete",
        "/sluice.v1.GenerationService/Chat",         "/sluice.v1.GenerationService/StreamChat",
        "/sluice.v1.GenerationService/CancelRequest", "/sluice.v1.TokenizerService/Tokenize",
        "/sluice.v1.TokenizerService/Detokenize",    "/sluice.v1.TokenizerService/RenderChat",
        "/sluice.v1.ModelService/ListModels",        "/sluice.v1.ModelService/GetModel",
        "/grpc.health.v1.Health/Check",              "/grpc.health.v1.Health/Watch"};
    return methods;
  }

  void ExpectReason(const grpc::Status& status, grpc::StatusCode code, const std::string& reason,
                    const std::string& words) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(words));
    EXPECT_EQ(DetailsOf(status).info.reason(), reason);
  }
};

TEST_F(HostileRequestsTest, EveryMethodSaysWhatIsWrongWithAMalformedRequest) {
  Start();
  for (const std::string& method : Methods()) {
    SCOPED_TRACE(method);
    ExpectReason(Call(method, "\x0f\x0f"), grpc::INVALID_ARGUMENT, "MALFORMED_REQUEST", "wire type");
    ExpectReason(Call(method, "\x7a\x7f"), grpc::INVALID_ARGUMENT, "MALFORMED_REQUEST", "127 bytes with 0 left");
    ExpectReason(Call(method, "", GRPC_COMPRESS_NONE, false), grpc::INVALID_ARGUMENT, "MALFORMED_REQUEST",
                 "no request");
    ExpectReason(Call(method, std::string((4 << 20) + 1, '\0')), grpc::RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE",
                 "--max-request-bytes");
    ExpectReason(Call(method, "\x1f\x8b", GRPC_COMPRESS_GZIP), grpc::UNIMPLEMENTED, "COMPRESSION_NOT_ACCEPTED",
                 "--accept-compression");
  }
  ExpectReason(Call("/sluice.v1.GenerationService/Complete", std::string("\x1a\x02x\xff", 4)), grpc::INVALID_ARGUMENT,
               "MALFORMED_REQUEST", "prompt: found bytes that are not UTF-8");
  std::string deep;  // groups in groups
  for (int i = 0; i < 120; ++i) deep += "\xfb\x07";
  for (int i = 0; i < 120; ++i) deep += "\xfc\x07";
  ExpectReason(Call("/sluice.v1.GenerationService/Chat", deep), grpc::INVALID_ARGUMENT, "MALFORMED_REQUEST",
               "inside each other");
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
}

TEST_F(HostileRequestsTest, CompressedRequestsAreInflatedWithinTheLimitWhereAccepted) {
  ServerOptions options = TestOptions();
  options.limits.accept_compression = true;
  Start(options);
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::CompleteResponse response;
    const grpc::Status status = generation()->Complete(&context, Prompt(std::string(90, 'x')), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.generated().usage().prompt_tokens(), 91u);
  }
  // Fifty mebibytes of empty messages in fifty kibibytes.
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::CompleteRequest request;
  request.set_prompt(std::string(50 << 20, 'x'));
  v1::CompleteResponse response;
  ExpectReason(generation()->Complete(&context, request, &response), grpc::RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE",
               "--max-request-bytes");
  ExpectReason(Call(Methods()[0], "no gzip", GRPC_COMPRESS_GZIP), grpc::INVALID_ARGUMENT, "MALFORMED_REQUEST",
               "not gzip");
}

TEST_F(HostileRequestsTest, EmptyMessagesByTheMillionAreNotMade) {
  Start();
  std::string empty;
  while (empty.size() + 2 <= size_t{4} << 20) empty += std::string("\x1a\x00", 2);
  ExpectReason(Call("/sluice.v1.GenerationService/Chat", empty), grpc::RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE",
               "more than 65536 messages");
}

}  // namespace
}  // namespace sluice
