// 64 live streams; one client never reads, one is frozen. The other 62 must not notice, and the frozen one is cut by
// keepalive.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "proto/answer.h"
#include "sluice/v1/generation.grpc.pb.h"
#include "tests/load/server_process.h"
#include "tests/sanitized.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReaders = 62;
// Under a sanitizer a step takes seconds, and a client that is awake may be silent for as long.
constexpr uint32_t kTokens = kSanitized ? 6 : 96;
constexpr uint32_t kUnreadTokens = kSanitized ? 40 : 600;
constexpr const char* kKeepaliveTimeout = kSanitized ? "15s" : "1s";

v1::StreamCompleteRequest Request(uint32_t tokens) {
  v1::StreamCompleteRequest request;
  request.set_prompt("Once upon a time there was a server that");
  v1::GenerateOptions* options = request.mutable_options();
  options->set_max_tokens(tokens);
  options->set_temperature(0);
  options->set_ignore_eos(true);
  options->set_return_token_ids(true);
  return request;
}

// A connection that takes almost nothing until the client reads: writes to it stall at once.
std::unique_ptr<v1::GenerationService::Stub> NarrowStub(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return v1::GenerationService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

// Streams to their end at the same time, all reading; tokens per second of all together. Every answer must be whole.
double RunReaders(const std::string& address) {
  const auto client = client::Client::Create(address);
  std::vector<Answer> answers(kReaders);
  std::vector<std::unique_ptr<client::Stream>> streams;
  const auto start = Clock::now();
  for (Answer& answer : answers) {
    client::StreamHandler handler;
    handler.on_delta = [&answer](const v1::Delta& event) { Fold(event, &answer); };
    streams.push_back(client->StreamComplete(Request(kTokens), std::move(handler)));
  }
  for (auto& stream : streams) {
    const absl::Status status = stream->Wait();
    EXPECT_TRUE(status.ok()) << status;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.choices_size(), 1);
    if (answer.choices_size() != 1) continue;
    EXPECT_EQ(answer.choices(0).token_ids_size(), int(kTokens));
  }
  return kReaders * kTokens / seconds;
}

// A client in a process of its own, so that it can be stopped; it must not share threads with us, hence exec of
// ourselves.
pid_t StartFrozenClient(const std::string& address) {
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "frozen_client", "--frozen-client", address.c_str(), nullptr);
    _exit(127);
  }
  return pid;
}

// Reads one event, then stops itself.
int FrozenClient(const std::string& address) {
  const auto stub = NarrowStub(address);
  grpc::ClientContext context;
  const auto reader = stub->StreamComplete(&context, Request(4000));
  v1::StreamCompleteResponse event;
  if (!reader->Read(&event)) return 1;
  raise(SIGSTOP);
  return 0;
}

uint32_t Running(client::Client& admin) {
  const auto load = admin.GetLoad();
  return load.ok() ? load->running() + load->waiting() : 0;
}

TEST(SlowReaders, DoNotDisturbTheOthers) {
  const auto server = ServerProcess::Start(SLUICE_SERVER_BINARY, {"--max-num-seqs", "64", "--grpc-keepalive-time", "2s",
                                                                  "--grpc-keepalive-timeout", kKeepaliveTimeout});
  if (server == nullptr) GTEST_SKIP() << "the model file is not in the cache";
  const auto admin = client::Client::Create(server->admin());
  if (!kSanitized) RunReaders(server->grpc());  // warm
  const double alone = RunReaders(server->grpc());

  const pid_t frozen = StartFrozenClient(server->grpc());
  int stopped = 0;
  ASSERT_EQ(waitpid(frozen, &stopped, WUNTRACED), frozen);
  ASSERT_TRUE(WIFSTOPPED(stopped));
  const auto stub = NarrowStub(server->grpc());
  grpc::ClientContext context;
  v1::StreamCompleteRequest big = Request(kUnreadTokens);
  big.mutable_options()->set_logprobs(20);  // some 500 bytes per token: no window holds them
  const auto unread = stub->StreamComplete(&context, big);
  while (Running(*admin) < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));

  const double beside = RunReaders(server->grpc());
  std::printf("62 streams: %.0f tok/s alone, %.0f beside two that do not read (%.3f)\n", alone, beside, beside / alone);

  // The one that did not read gets all of it. What was made meanwhile comes in a few large messages: its writes had
  // stalled.
  int messages = 0, tokens = 0;
  for (v1::StreamCompleteResponse event; unread->Read(&event);) {
    messages += event.event().has_delta();
    tokens += event.event().delta().token_ids_size();
  }
  const grpc::Status status = unread->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(tokens, int(kUnreadTokens));
  EXPECT_GT(tokens - messages, int(kTokens) / 2);

  // The frozen one is cut by keepalive, though its request would run on for minutes.
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (Running(*admin) > 0 && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(Running(*admin), 0u) << "the frozen client's request still runs";
  kill(frozen, SIGKILL);
  waitpid(frozen, nullptr, 0);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--frozen-client") return sluice::FrozenClient(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
