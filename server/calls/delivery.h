// Takes step results off the engine thread and turns them into what clients see, on a thread of its own.
//
// The engine never waits for this thread, and this thread never waits for a client (ReplySink), so the queue between them
// is short: it grows only while the engine makes output faster than it can be made into events, which log-probabilities of
// a large vocabulary bring about. It is bounded in bytes. A step that finds the queue empty is taken whole, whatever it
// holds. Else log-probabilities may fill half of the room and all output together the whole of it; a call whose output
// finds no room is ended with RESOURCE_EXHAUSTED (OUTPUT_OVERFLOW), at once in the engine, and brings nothing more. So
// calls with log-probabilities go first, and what is held is the room, one step that found it empty and another one that
// is being delivered.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/request.h"
#include "server/calls/rate_meter.h"
#include "server/metrics.h"

namespace sluice {

class Calls;

class Delivery final : public TokenSink {
 public:
  static constexpr int64_t kMaxQueuedBytes = 256 << 20;

  // `model`: its id, for metrics. The pointers and the clock outlive the object.
  Delivery(std::string model, Calls* calls, Metrics* metrics, const Clock& clock, int64_t max_queued_bytes = kMaxQueuedBytes);
  ~Delivery() override;  // Stop()

  // On the engine thread: hands the outputs over, or ends the calls of those that find no room. Their context is a
  // Call::Choice.
  void OnStep(const StepStats& stats, std::vector<SequenceOutput> outputs) override ABSL_LOCKS_EXCLUDED(mutex_);

  // The engine will not speak again: what it says from now on is dropped, and every call that it was given ends, with
  // `status` (not OK) unless it was stopped for another reason before. Thread-safe; later calls have no effect.
  void Abandon(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  // Delivers what has been handed over and ends the thread. REQUIRES: the engine has stopped. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of outputs that wait to be delivered. Thread-safe.
  int64_t queued_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Tokens generated and prompt tokens computed, over the last ten seconds. Thread-safe.
  double GenerationTokensPerSecond() const { return generation_rate_.PerSecond(clock_.NowNs()); }
  double PromptTokensPerSecond() const { return prompt_rate_.PerSecond(clock_.NowNs()); }

 private:
  struct Bytes {
    int64_t all = 0;
    int64_t logprobs = 0;
  };
  struct Step {
    int64_t end_ns = 0;
    Bytes bytes;
    StepStats stats;
    std::vector<SequenceOutput> outputs;
  };

  static Bytes SizeOf(const SequenceOutput& output);
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool NextStep(Step* step) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndAbandonedCalls() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string model_;
  Calls* const calls_;
  Metrics* const metrics_;
  const Clock& clock_;
  const int64_t max_queued_bytes_;
  RateMeter generation_rate_;
  RateMeter prompt_rate_;

  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mutex_);
  Bytes queued_ ABSL_GUARDED_BY(mutex_);  // in steps_
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status abandoned_ ABSL_GUARDED_BY(mutex_);  // OK until Abandon

  std::thread thread_;
};

}  // namespace sluice
