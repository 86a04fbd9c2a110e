// A call costs the program no more memory than its size says, whatever its bytes would become.
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "sluice/v1/generation.grpc.pb.h"
#include "tests/sanitized.h"
#include "tests/server/program.h"

namespace sluice {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kAllowedBytes = kSanitized ? 512 * kMiB : 64 * kMiB;

grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& request,
                  bool gzip) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  if (gzip) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

TEST(ProgramMemory, MessagesThatWouldBecomeGigabytesCostLittle) {
  // On the wire: 62 KiB that become 62 MiB, whose objects would take 6.5 GB; 200 KiB that become 200 MiB of text; and
  // as many empty messages and stop strings as 4 MiB hold.
  std::string empty_messages, few_messages, text = "\x1a\x80\x80\x80\x64";
  for (int i = 0; i < 31 * kMiB; ++i) empty_messages += std::string("\x1a\x00", 2);
  few_messages = empty_messages.substr(0, 4 * kMiB);
  text.append(200 * kMiB, 'a');
  for (const bool accepted : {false, true}) {
    Program program(accepted ? std::vector<std::string>{"--accept-compression"} : std::vector<std::string>{});
    const auto channel = grpc::CreateChannel(program.address(), grpc::InsecureChannelCredentials());
    EXPECT_TRUE(Call(channel, "/grpc.health.v1.Health/Check", "", false).ok());
    const int64_t before = program.PeakBytes();
    const auto expected = accepted ? grpc::RESOURCE_EXHAUSTED : grpc::UNIMPLEMENTED;
    for (const std::string* bomb : {&empty_messages, &text}) {
      const grpc::Status status = Call(channel, "/sluice.v1.GenerationService/Chat", *bomb, true);
      EXPECT_EQ(status.error_code(), expected) << status.error_message();
    }
    for (int i = 0; i < 4; ++i) {
      const grpc::Status status = Call(channel, "/sluice.v1.GenerationService/StreamChat", few_messages, false);
      EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
    }
    EXPECT_LT(program.PeakBytes() - before, kAllowedBytes) << "accepted: " << accepted;
    const auto stub = v1::GenerationService::NewStub(channel);
    v1::CompleteRequest request;
    request.mutable_prompt_ids()->add_ids(1);
    request.mutable_options()->set_max_tokens(1);
    v1::CompleteResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(stub->Complete(&context, request, &response).ok());
    EXPECT_EQ(program.Terminate(std::chrono::seconds(30)), 0);
  }
}

}  // namespace
}  // namespace sluice
