// What the tests of the engine put around it: a sink that remembers, a gate that holds steps, a clock turned by hand.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "tests/scheduler/collected.h"
#include "tests/scheduler/hash_runner.h"

namespace sluice::testing {

class FakeClock : public Clock {
 public:
  int64_t NowNs() const override {
    num_reads_.fetch_add(1);
    return now_ns_.load();
  }
  void Set(int64_t now_ns) { now_ns_.store(now_ns); }
  int64_t num_reads() const { return num_reads_.load(); }

 private:
  std::atomic<int64_t> now_ns_{1000};
  mutable std::atomic<int64_t> num_reads_{0};
};

class RecordingSink : public TokenSink {
 public:
  std::function<void()> on_step;  // called on the engine thread at the beginning of OnStep; set before the first

  void OnStep(const StepStats& stats, std::vector<SequenceOutput> outputs) override {
    if (on_step) on_step();
    MutexLock lock(&mutex_);
    num_steps_ += stats.num_sequences > 0;
    EXPECT_TRUE(stats.num_sequences > 0 || !outputs.empty()) << "called for nothing";
    collector_.Add(std::move(outputs));
    changed_.NotifyAll();
  }

  void WaitForFinished(int num_sequences) {
    MutexLock lock(&mutex_);
    while (collector_.num_finished() < num_sequences) changed_.Wait(&mutex_);
  }
  void WaitForTokens(SequenceId id, size_t num_tokens) {
    MutexLock lock(&mutex_);
    while (collector_[id].tokens.size() < num_tokens) changed_.Wait(&mutex_);
  }
  Collected Get(SequenceId id) {
    MutexLock lock(&mutex_);
    return collector_[id];
  }
  int num_finished() {
    MutexLock lock(&mutex_);
    return collector_.num_finished();
  }
  int num_steps() {
    MutexLock lock(&mutex_);
    return num_steps_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  Collector collector_ ABSL_GUARDED_BY(mutex_);
  int num_steps_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Lets steps pass one by one, or all once opened.
class StepGate {
 public:
  // On the engine thread, at the beginning of a step.
  void Enter(const StepPlan& plan) {
    MutexLock lock(&mutex_);
    ++num_entered_;
    slots_ = std::set<int32_t>(plan.seq_slots.begin(), plan.seq_slots.end());
    changed_.NotifyAll();
    while (!open_ && num_permits_ == 0) changed_.Wait(&mutex_);
    if (!open_) --num_permits_;
  }

  // Waits until the `n`th step since the start is held at the gate; returns how many sequences it has.
  int WaitForStep(int n) {
    MutexLock lock(&mutex_);
    while (num_entered_ < n) changed_.Wait(&mutex_);
    return int(slots_.size());
  }
  void LetOnePass() {
    MutexLock lock(&mutex_);
    ++num_permits_;
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int num_permits_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_entered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int32_t> slots_ ABSL_GUARDED_BY(mutex_);
};

inline std::unique_ptr<Engine> MakeEngine(const EngineOptions& options, std::unique_ptr<HashRunner> runner,
                                          TokenSink* sink, const Clock& clock) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options, std::move(runner), sink, clock);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

inline std::unique_ptr<Engine> MakeEngine(const EngineOptions& options, TokenSink* sink, const Clock& clock,
                                          std::function<absl::Status(const StepPlan&)> before_step = nullptr) {
  auto runner = std::make_unique<HashRunner>(options);
  runner->before_step = std::move(before_step);
  return MakeEngine(options, std::move(runner), sink, clock);
}

inline SequenceId SubmitOne(Engine* engine, Request request) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  absl::StatusOr<std::vector<SequenceId>> ids = engine->Submit(std::move(requests));
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? ids->at(0) : 0;
}

// The error of a Submit of one request that must be refused.
inline absl::Status Refusal(Engine* engine, Request request) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return engine->Submit(std::move(requests)).status();
}

// At rest: nothing runs or waits, and every block is back.
inline void ExpectAtRest(const EngineStats& stats) {
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.num_waiting_tokens, 0);
  EXPECT_EQ(stats.kv_blocks_live, 0);
  EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
  EXPECT_FALSE(stats.busy);
}

// Tests of one engine.
class EngineTest : public ::testing::Test {
 protected:
  // An engine whose steps pass freely.
  void Start(const EngineOptions& options) {
    options_ = options;
    engine_ = MakeEngine(options, &sink_, clock_);
  }
  // An engine whose steps wait at `gate_`.
  void StartGated(const EngineOptions& options) {
    options_ = options;
    engine_ = MakeEngine(options, &sink_, clock_, [this](const StepPlan& plan) {
      gate_.Enter(plan);
      return absl::OkStatus();
    });
  }
  ~EngineTest() override { gate_.Open(); }

  FakeClock clock_;
  RecordingSink sink_;
  StepGate gate_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::testing
