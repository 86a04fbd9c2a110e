// Takes step results off the engine thread and turns them into what clients see, on a thread of its own.
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
  // `model`: its id, for metrics. The pointers and the clock outlive the object.
  Delivery(std::string model, Calls* calls, Metrics* metrics, const Clock& clock);
  ~Delivery() override;  // Stop()

  // On the engine thread: hands the outputs over. Their context is a Call::Choice.
  void OnStep(const StepStats& stats, std::vector<SequenceOutput> outputs) override ABSL_LOCKS_EXCLUDED(mutex_);

  // The engine will not speak again: what it says from now on is dropped, and every call that it was given ends, with
  // `status` (not OK) unless it was stopped for another reason before. Thread-safe; later calls have no effect.
  void Abandon(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  // Delivers what has been handed over and ends the thread. REQUIRES: the engine has stopped. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Tokens generated and prompt tokens computed, over the last ten seconds. Thread-safe.
  double GenerationTokensPerSecond() const { return generation_rate_.PerSecond(clock_.NowNs()); }
  double PromptTokensPerSecond() const { return prompt_rate_.PerSecond(clock_.NowNs()); }

 private:
  struct Step {
    int64_t end_ns = 0;
    StepStats stats;
    std::vector<SequenceOutput> outputs;
  };

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool NextStep(Step* step) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndAbandonedCalls() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string model_;
  Calls* const calls_;
  Metrics* const metrics_;
  const Clock& clock_;
  RateMeter generation_rate_;
  RateMeter prompt_rate_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status abandoned_ ABSL_GUARDED_BY(mutex_);  // OK until Abandon

  std::thread thread_;
};

}  // namespace sluice
