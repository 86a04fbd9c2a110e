// Three times a thousand streams, each opened and cancelled at a random moment: nothing stays behind.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "tests/load/server_process.h"
#include "tests/sanitized.h"

namespace sluice {
namespace {

constexpr int kStreams = 1000;
constexpr int kThreads = 24;

// Opens a stream with a prompt of some length and leaves it: before it began, in its prefill, or after some tokens.
void OpenAndCancel(client::Client& client, std::mt19937& random) {
  v1::StreamCompleteRequest request;
  constexpr int kPromptLengths[] = {3, 40, 300};
  const int length = kPromptLengths[random() % 3];
  for (int i = 0; i < length; ++i) request.mutable_prompt_ids()->add_ids(20 + random() % 40000);
  request.mutable_options()->set_max_tokens(200);
  request.mutable_options()->set_ignore_eos(true);
  request.mutable_options()->set_n(random() % 4 == 0 ? 2 : 1);
  const int events = random() % 2 == 0 ? int(random() % 6) : 1000;
  const auto patience = std::chrono::microseconds(random() % 50'000);

  std::atomic<int> seen{0};
  client::StreamHandler handler;
  handler.on_started = [&](const v1::Started&) { ++seen; };
  handler.on_delta = [&](const v1::Delta&) { ++seen; };
  const auto stream = client.StreamComplete(request, handler);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (seen < events && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stream->Cancel();
  const absl::Status status = stream->Wait();
  ASSERT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
}

void Storm(client::Client& client, uint32_t seed) {
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed * 1000 + uint32_t(t));
      while (next.fetch_add(1) < kStreams) OpenAndCancel(client, random);
    });
  }
  for (auto& thread : threads) thread.join();
}

// The last cancels may still be on their way, and a step under a sanitizer takes seconds; blocks must add up at every
// look.
void WaitUntilIdle(client::Client& admin) {
  absl::StatusOr<v1::GetLoadResponse> load;
  for (int i = 0; i < (kSanitized ? 20'000 : 2000); ++i) {
    load = admin.GetLoad();
    ASSERT_TRUE(load.ok()) << load.status();
    ASSERT_EQ(load->kv_blocks_live() + load->kv_blocks_cached() + load->kv_blocks_free(), load->kv_blocks_total());
    if (load->running() == 0 && load->waiting() == 0 && load->kv_blocks_live() == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FAIL() << "still busy after the storm: " << load->ShortDebugString();
}

TEST(CancelStorm, LeavesNothingBehind) {
  // A KV cache so small that the first storm touches all of it: it is not what grows.
  const auto server = ServerProcess::Start(
      SLUICE_SERVER_BINARY, {"--kv-memory", "64MiB", "--max-queued-requests", "4096", "--max-queue-seconds", "0"});
  if (server == nullptr) GTEST_SKIP() << "the model file is not in the cache";
  const auto client = client::Client::Create(server->grpc());
  const auto admin = client::Client::Create(server->admin());
  std::vector<long> resident;
  for (uint32_t storm = 0; storm < 3; ++storm) {
    Storm(*client, storm);
    ASSERT_NO_FATAL_FAILURE(WaitUntilIdle(*admin));
    resident.push_back(server->ResidentKib());
  }
  std::printf("resident KiB after each thousand: %ld %ld %ld\n", resident[0], resident[1], resident[2]);
  // A sanitizer's allocator keeps what was freed.
  if (!kSanitized) {
    EXPECT_LT(resident[2] - resident[1], 4 * 1024) << "resident memory grows";
  }
}

}  // namespace
}  // namespace sluice
