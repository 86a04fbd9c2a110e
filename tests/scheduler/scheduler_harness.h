// A scheduler, the hash model and a clock that the test turns itself, wired as the engine wires them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
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

// Runs to max_tokens, of tokens that no end token of SmallOptions is among.
inline Request PromptOf(int32_t length, int32_t max_tokens, int32_t salt = 1) {
  Request request = MakeRequest(MakePrompt(length, salt, 998), max_tokens);
  request.sampling.seed = uint64_t(salt);
  return request;
}

class SchedulerHarness {
 public:
  // `drafter`: null for none; outlives the harness.
  explicit SchedulerHarness(const EngineOptions& options, bool launches_async = false, TokenDrafter* drafter = nullptr)
      : options(options), runner(options, launches_async), scheduler(options, drafter) {}

  SequenceId Add(const Request& request) {
    EXPECT_EQ(ValidateRequest(request, options), absl::OkStatus());
    ++last_id;
    scheduler.Add(last_id, last_id, request, now_ns);
    return last_id;
  }

  // One turn of the engine's loop: a step, or with a runner that launches asynchronously the launch of one and the end of the one
  // before. The last plan stays readable in `plan`. Returns the stats of the step that ended, if one did.
  StepStats Step() {
    ++now_ns;
    const bool launched = scheduler.has_sequences() && Launch();
    if (scheduler.num_steps_in_flight() <= (launched && runner.launches_async() ? 1 : 0)) return {};
    return Commit();
  }

  // False: the scheduler has nothing to plan before the step in flight is over.
  bool Launch() {
    const int64_t num_preemptions = scheduler.num_preemptions();
    const StepPlan* next = scheduler.Plan(now_ns);
    EXPECT_TRUE(next != nullptr || scheduler.num_steps_in_flight() == 1);
    if (scheduler.num_preemptions() > num_preemptions) {
      EXPECT_EQ(scheduler.num_steps_in_flight(), 1) << "preempted while a step was in flight";
      EXPECT_GT(scheduler.num_waiting(), 0) << "let in again in the step that preempted it";
    }
    if (next == nullptr) return false;
    plan = *next;
    rows_in_flight.push_back({plan.num_tokens(), plan.num_seqs()});
    EXPECT_TRUE(runner.Launch(plan).ok());
    scheduler.CheckInvariants();
    return true;
  }

  StepStats Commit() {
    absl::StatusOr<StepResult> result = runner.Take();
    EXPECT_TRUE(result.ok());
    ++now_ns;
    std::vector<SequenceOutput> outputs;
    const StepStats stats = scheduler.Commit(*std::move(result), now_ns, &outputs);
    collected.Add(std::move(outputs));
    EXPECT_EQ(stats.num_prefill_tokens + stats.num_decode_tokens, rows_in_flight.front().first);
    EXPECT_EQ(stats.num_sequences, rows_in_flight.front().second);
    rows_in_flight.pop_front();
    scheduler.CheckInvariants();
    return stats;
  }

  // See ShortOutput. REQUIRES: nothing runs
  void ExpectShortOutputs() {
    for (int i = 0; i < 40; ++i) Add(ShortOutput(options));
    RunToEnd();
  }

  bool has_work() const { return scheduler.has_sequences() || scheduler.num_steps_in_flight() > 0; }
  void RunToEnd(int max_steps = 100000) {
    while (has_work() && max_steps-- > 0) Step();
    EXPECT_FALSE(has_work()) << "no progress";
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
  std::deque<std::pair<int32_t, int32_t>> rows_in_flight;  // tokens and sequences of each step
  Collector collected;
  int64_t now_ns = 1000;
  SequenceId last_id = 0;
};

}  // namespace sluice::testing
