// The engine: its own thread plans, runs and commits steps until it is stopped; callers hand requests in and get tokens
// out through a TokenSink. The engine thread is the only one that changes scheduler state; Submit and Cancel leave
// notes in an inbox that is read between steps, so a cancel takes effect within one step, at once when idle. With a
// runner that launches asynchronously the next step is launched before a step's tokens are waited for: the device does not idle while
// they are read, delivered and planned with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/engine_options.h"
#include "engine/request.h"
#include "engine/scheduler/queue_time.h"
#include "engine/scheduler/step_runner.h"

namespace sluice {

// A consistent picture, taken by the engine thread after each inbox, each plan and each step.
struct EngineStats {
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int64_t num_waiting_tokens = 0;
  QueueDrain queue_drain;        // how fast the queue moves
  int32_t kv_blocks_live = 0;    // held by sequences
  int32_t kv_blocks_cached = 0;  // of prefixes that nobody holds, to be had at any time
  int32_t kv_blocks_free = 0;
  int32_t kv_blocks_total = 0;  // live + cached + free
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;
  int64_t num_prompt_tokens = 0;  // of accepted sequences, counted when their prefill has completed
  int64_t num_generation_tokens = 0;
  int64_t num_prefix_queried_tokens = 0;  // scheduler/prefix_cache.h
  int64_t num_prefix_hit_tokens = 0;
  int64_t last_progress_ns = 0;  // Clock; when the last step ended, or when work arrived at an idle engine
  bool busy = false;             // running or waiting sequences exist
  bool draining = false;
  absl::Status fault;  // not OK once the engine has given up; every sequence got kError
};

class Engine {
 public:
  // `sink` and `clock` outlive the engine. Starts the engine thread. INVALID_ARGUMENT names an option that makes no
  // sense.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        std::unique_ptr<StepRunner> runner, TokenSink* sink,
                                                        const Clock& clock);
  ~Engine();  // Stop()

  // All or nothing, thread-safe, never blocks on a step. Returns one id per request, in order.
  // INVALID_ARGUMENT: a request can never run (empty prompt, ids outside the vocabulary, prompt + max_tokens over
  // max_model_len, more blocks than the pool has); RESOURCE_EXHAUSTED: the queue is full, or so slow that the first
  // of them would wait longer than max_queue_seconds, with the time after which another try should succeed
  // (engine/retry_after.h) if the pace of the queue is known; UNAVAILABLE: draining or stopped; the fault, once the
  // engine has given up. Each carries a reason (engine/error_reason.h).
  absl::StatusOr<std::vector<SequenceId>> Submit(std::vector<Request> requests);

  // Thread-safe; unknown or finished ids are ignored. The sequence's last output carries `reason` (not kNone).
  void Cancel(SequenceId id, FinishReason reason = FinishReason::kCancelled);

  // Thread-safe.
  EngineStats Stats() const;

  // StepRunner::DescribeWorkers. Thread-safe.
  std::string DescribeWorkers() const;

  // From now on Submit answers UNAVAILABLE. What was submitted together and has not begun to run finishes as kError
  // with an UNAVAILABLE status; where one sequence has run, all of its submission go on, also those that still wait.
  // Thread-safe; there is no way back.
  void Drain();

  // Finishes every sequence as kCancelled and ends the thread. Idempotent, thread-safe; not to be called from the sink.
  void Stop();

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
