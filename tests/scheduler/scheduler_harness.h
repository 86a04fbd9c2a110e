// A scheduler, the hash model and a clock that the test turns itself, wired as the engine wires them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/scheduler/kv_blocks.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/validate.h"
#include "tests/scheduler/collected.h"
#include "tests/scheduler/hash_runner.h"

namespace sluice::testing {

inline EngineOptions SmallOptions() {
  EngineOptions options;
  options.max_model_len = 256;
  options.vocab_size = 1000;
  options.eos_token_ids = {998, 999};
  options.block_size = 4;
  options.num_blocks = 64;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 32;
  options.max_prefill_tokens_beside_decodes = 32;
  return options;
}

inline Request MakeRequest(std::vector<int32_t> prompt, int32_t max_tokens) {
  Request request;
  request.prompt_tokens = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

class SchedulerHarness {
 public:
  explicit SchedulerHarness(const EngineOptions& options) : options(options), runner(options), scheduler(options) {}

  SequenceId Add(const Request& request) {
    EXPECT_EQ(ValidateRequest(request, options), absl::OkStatus());
    scheduler.Add(++last_id, request, now_ns);
    return last_id;
  }

  // One step. The plan stays readable in `plan` until the next one.
  StepStats Step() {
    ++now_ns;
    const int64_t num_preemptions = scheduler.num_preemptions();
    plan = scheduler.Plan(now_ns);
    if (scheduler.num_preemptions() > num_preemptions) {
      EXPECT_GT(scheduler.num_waiting(), 0) << "let in again in the step that preempted it";
    }
    absl::StatusOr<StepResult> result = runner.Run(plan);
    EXPECT_TRUE(result.ok());
    ++now_ns;
    std::vector<SequenceOutput> outputs;
    const StepStats stats = scheduler.Commit(*std::move(result), now_ns, &outputs);
    collected.Add(std::move(outputs));
    EXPECT_EQ(stats.num_prefill_tokens + stats.num_decode_tokens, plan.num_tokens());
    EXPECT_EQ(stats.num_sequences, plan.num_seqs());
    scheduler.CheckInvariants();
    return stats;
  }

  void RunToEnd(int max_steps = 100000) {
    while (scheduler.has_sequences() && max_steps-- > 0) Step();
    EXPECT_FALSE(scheduler.has_sequences()) << "no progress";
  }

  void Finish(SequenceId id, FinishReason reason) {
    std::vector<SequenceOutput> outputs;
    scheduler.Finish(id, reason, now_ns, &outputs);
    collected.Add(std::move(outputs));
    scheduler.CheckInvariants();
  }

  void FinishExpired() {
    std::vector<SequenceOutput> outputs;
    scheduler.FinishExpired(now_ns, &outputs);
    collected.Add(std::move(outputs));
    scheduler.CheckInvariants();
  }

  int32_t rows(int32_t sequence_index) const {
    return plan.row_starts[sequence_index + 1] - plan.row_starts[sequence_index];
  }

  const EngineOptions options;
  HashRunner runner;
  Scheduler scheduler;
  StepPlan plan;
  Collector collected;
  int64_t now_ns = 1000;
  SequenceId last_id = 0;
};

}  // namespace sluice::testing
