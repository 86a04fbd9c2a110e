// The log of the program itself: what clients send does not forge it, nor flood it, and nobody has to read it.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "sluice/v1/generation.grpc.pb.h"
#include "tests/server/program.h"
#include "tests/server/raw_http2.h"
#include "tests/server/raw_socket.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

// A header as HPACK writes one that it does not index, of any length.
std::string LongHeader(const std::string& name, const std::string& value) {
  std::string length;
  if (value.size() < 127) {
    length.push_back(char(value.size()));
  } else {
    length.push_back(127);
    size_t rest = value.size() - 127;
    for (; rest >= 128; rest >>= 7) length.push_back(char(0x80 | (rest & 127)));
    length.push_back(char(rest));
  }
  return std::string(1, '\0') + char(name.size()) + name + length + value;
}

// Calls with a `te` header that gRPC refuses, and prints.
void SendHeaders(int port, const std::string& te, int count) {
  RawSocket socket(port);
  std::string bytes = raw::kPreface + raw::Frame(raw::kSettings, 0, 0);
  for (int i = 0; i < count; ++i) {
    bytes += raw::Frame(raw::kHeaders, raw::kEndStream | raw::kEndHeaders, uint32_t(2 * i + 1),
                        raw::Header(":method", "POST") + raw::Header(":scheme", "http") + raw::Header(":path", "/x") +
                            raw::Header(":authority", "x") + LongHeader("te", te) +
                            raw::Header("content-type", "application/grpc"));
  }
  socket.Send(bytes);
  socket.ClosedWithin(300ms);
}

TEST(ProgramLog, HeadersOfClientsNeitherForgeNorFloodIt) {
  Program program({"--log-level", "debug"});
  program.ReadLog();
  SendHeaders(program.port(), "x\n2026-12-01T00:00:00.000Z INFO a forged line \x1b[31mred", 1);
  const std::string log = program.ReadLog();
  EXPECT_THAT(log, testing::HasSubstr("gRPC ")) << "gRPC says nothing: the test tests nothing";
  EXPECT_THAT(log, testing::Not(testing::HasSubstr("\n2026-12-01T00:00:00.000Z INFO a forged line")));
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
  for (int i = 0; i < 10; ++i) SendHeaders(program.port(), std::string(3000, 'z'), 50);
  EXPECT_LT(program.ReadLog().size(), 64u << 10);
}

TEST(ProgramLog, CallsAreAnsweredAndTheProgramEndsWhileNobodyReadsIt) {
  Program program({"--log-level", "debug"});
  const auto stub = v1::GenerationService::NewStub(
      grpc::CreateChannel(program.address(), grpc::InsecureChannelCredentials()));
  v1::CompleteRequest request;
  request.mutable_prompt_ids()->add_ids(1);
  request.mutable_options()->set_max_tokens(1);
  request.set_user(std::string(128, 'u'));
  for (int i = 0; i < 600; ++i) {  // each a line of some 280 bytes; a pipe holds 64 KiB
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    v1::CompleteResponse response;
    const grpc::Status status = stub->Complete(&context, request, &response);
    ASSERT_TRUE(status.ok()) << i << ": " << status.error_message();
  }
  EXPECT_EQ(program.Terminate(30s), 0);
}

}  // namespace
}  // namespace sluice
