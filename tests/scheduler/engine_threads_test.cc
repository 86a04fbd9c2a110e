// Many threads at one engine. Meant to be run under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/scheduler/engine_harness.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using testing::ExpectAsAlone;
using testing::ExpectAtRest;
using testing::MakeEngine;
using testing::MakePrompt;
using testing::MakeRequest;
using testing::RecordingSink;
using testing::SmallOptions;

// Of whether the runner runs ahead.
class EngineThreadsTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Engine> Start(const EngineOptions& options, TokenSink* sink) {
    return MakeEngine(options, std::make_unique<testing::HashRunner>(options, GetParam()), sink, Clock::Real());
  }
};

TEST_P(EngineThreadsTest, AThousandCancelsAtRandomMomentsLeaveNothingBehind) {
  EngineOptions options = SmallOptions();
  options.prefix_cache = true;
  RecordingSink sink;
  const auto engine = Start(options, &sink);
  std::mt19937 rng(1);
  std::vector<std::pair<SequenceId, Request>> all;
  std::vector<SequenceId> to_cancel;
  while (all.size() < 1000) {
    Request request = MakeRequest(MakePrompt(1 + int(rng() % 60), int(rng() % 20), 998), 150);
    if (rng() % 4 == 0) request.cache_salt = "a";
    const SequenceId id = testing::SubmitOne(engine.get(), request);
    all.emplace_back(id, std::move(request));
    to_cancel.push_back(id);
    // Some at once, some in the queue, some in the middle of their prompt or output.
    while (to_cancel.size() > 1 + rng() % 12) {
      std::swap(to_cancel[rng() % to_cancel.size()], to_cancel.back());
      engine->Cancel(to_cancel.back());
      to_cancel.pop_back();
    }
    if (rng() % 4 == 0) std::this_thread::yield();
  }
  for (SequenceId id : to_cancel) engine->Cancel(id);
  sink.WaitForFinished(1000);
  ExpectAtRest(engine->Stats());
  for (const auto& [id, request] : all) {
    const testing::Collected c = sink.Get(id);
    if (c.last.finish_reason == FinishReason::kCancelled) {
      const testing::Expected expected = testing::ExpectedOutput(request, options);
      ASSERT_LE(c.tokens.size(), expected.tokens.size());
      EXPECT_TRUE(std::equal(c.tokens.begin(), c.tokens.end(), expected.tokens.begin()));
    } else {
      ExpectAsAlone(c, request, options);
    }
  }
}

TEST_P(EngineThreadsTest, SubmitCancelStatsAndDrainFromEverywhere) {
  for (const int drain_after : {0, 10, 100, 400}) {
    EngineOptions options = SmallOptions();
    options.max_queued_requests = 40;
    options.prefix_cache = true;
    RecordingSink sink;
    const auto engine = Start(options, &sink);
    std::atomic<int> num_accepted{0};
    std::atomic<int> num_submitters_done{0};
    constexpr int kSubmitters = 4;
    const auto submit = [&](int salt) {
      std::mt19937 rng(salt);
      for (int i = 0; i < 150; ++i) {
        std::vector<Request> requests;
        for (int k = 1 + int(rng() % 3); k > 0; --k) {
          requests.push_back(MakeRequest(MakePrompt(1 + int(rng() % 30), int(rng() % 1000), 998), 1 + int(rng() % 20)));
          if (rng() % 10 == 0) requests.back().deadline_ns = Clock::Real().NowNs() + int64_t(rng() % 1000000);
        }
        const auto ids = engine->Submit(std::move(requests));
        if (!ids.ok()) {
          EXPECT_TRUE(ids.status().code() == absl::StatusCode::kResourceExhausted ||
                      ids.status().code() == absl::StatusCode::kUnavailable)
              << ids.status();
          std::this_thread::yield();
          continue;
        }
        num_accepted += int(ids->size());
        if (rng() % 3 == 0) engine->Cancel(ids->front());
      }
      ++num_submitters_done;
    };
    const auto watch = [&] {
      while (num_submitters_done < kSubmitters) {
        const EngineStats stats = engine->Stats();
        EXPECT_EQ(stats.kv_blocks_live + stats.kv_blocks_cached + stats.kv_blocks_free, stats.kv_blocks_total);
        EXPECT_LE(stats.num_running, options.max_num_seqs);
        EXPECT_TRUE(stats.busy || stats.num_running + stats.num_waiting == 0);
        std::this_thread::yield();
      }
    };
    const auto drain = [&] {
      while (num_submitters_done < kSubmitters && num_accepted < drain_after) std::this_thread::yield();
      while (num_submitters_done < kSubmitters) {
        engine->Drain();
        std::this_thread::yield();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kSubmitters; ++i) threads.emplace_back(submit, i + 1);
    threads.emplace_back(watch);
    threads.emplace_back(drain);
    for (std::thread& thread : threads) thread.join();
    sink.WaitForFinished(num_accepted);
    ExpectAtRest(engine->Stats());
    EXPECT_EQ(sink.num_finished(), num_accepted);
  }
}

TEST_P(EngineThreadsTest, StoppingUnderFireEndsEverySequenceOnce) {
  for (int round = 0; round < 20; ++round) {
    RecordingSink sink;
    const auto engine = Start(SmallOptions(), &sink);
    std::atomic<int> num_accepted{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        for (int k = 0; k < 1000; ++k) {
          const auto ids = engine->Submit({MakeRequest(MakePrompt(5, i * 1000 + k, 998), 50)});
          if (ids.ok()) ++num_accepted;
          if (ids.status().code() == absl::StatusCode::kUnavailable) return;
          if (ids.ok() && k % 2 == 0) engine->Cancel(ids->front());
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    engine->Stop();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(sink.num_finished(), num_accepted);
    ExpectAtRest(engine->Stats());
  }
}

INSTANTIATE_TEST_SUITE_P(Runners, EngineThreadsTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Ahead" : "InStep"; });

}  // namespace
}  // namespace sluice
