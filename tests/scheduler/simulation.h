// The scheduler in simulated time: calls arrive when the test says so, a step takes as long as its rows, and an output
// is as long as the test wants. Hours of arrivals take seconds; the books are checked after every step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/scheduler/kv_blocks.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/validate.h"

namespace sluice::testing {

struct SimulatedCall {
  double arrival = 0;  // seconds
  int32_t prompt = 1;
  int32_t output = 1;  // tokens after which it stops; at most max_tokens
  int32_t max_tokens = 0;  // 0: `output`, and nothing may stop it before

  // Filled in by Simulate, seconds.
  double first_scheduled = 0, first_token = 0, finish = 0;
  int32_t num_preemptions = 0;

  double time_to_first_token() const { return first_token - arrival; }
  double duration() const { return finish - arrival; }
};

// Of SmolLM2-135M on two slow cores, or so.
struct StepCost {
  double seconds = 4e-3;          // whatever it carries
  double seconds_per_row = 1e-3;  // for a token more
};

struct SimulationResult {
  int64_t num_rows = 0;  // computed
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;
  double seconds = 0;  // until the last call ended
};

// Runs `calls`, which are in order of arrival, to their end.
inline SimulationResult Simulate(const EngineOptions& options, absl::Span<SimulatedCall> calls, StepCost cost = {}) {
  constexpr int32_t kWord = 1;
  const int32_t end_token = options.eos_token_ids.at(0);
  Scheduler scheduler(options);
  SimulationResult result;
  double now = 0;
  size_t next = 0;
  const auto ns = [](double seconds) { return int64_t(seconds * 1e9) + 1; };
  std::vector<SequenceOutput> outputs;
  while (next < calls.size() || scheduler.has_sequences()) {
    if (!scheduler.has_sequences()) now = std::max(now, calls[next].arrival);
    for (; next < calls.size() && calls[next].arrival <= now; ++next) {
      const SimulatedCall& call = calls[next];
      Request request;
      request.prompt_tokens.assign(size_t(call.prompt), kWord);
      request.sampling.max_tokens = call.max_tokens > 0 ? call.max_tokens : call.output;
      request.sampling.ignore_eos = call.max_tokens == 0;
      request.sampling.seed = uint64_t(call.output);
      EXPECT_TRUE(ValidateRequest(request, options).ok());
      scheduler.Add(next + 1, next + 1, std::move(request), ns(call.arrival));
    }
    const StepPlan* plan = scheduler.Plan(ns(now));
    StepResult step;
    for (const SampleEntry& sample : plan->samples) {
      const bool last = sample.output_tokens.size() + 1 == sample.params->seed;
      step.samples.emplace_back().token = last ? end_token : kWord;
    }
    now += cost.seconds + cost.seconds_per_row * plan->num_tokens();
    result.num_rows += plan->num_tokens();
    ++result.num_steps;
    outputs.clear();
    scheduler.Commit(std::move(step), ns(now), &outputs);
    scheduler.CheckInvariants();
    for (const SequenceOutput& output : outputs) {
      if (output.finish_reason == FinishReason::kNone) continue;
      SimulatedCall& call = calls[output.id - 1];
      call.first_scheduled = double(output.timings.first_scheduled_ns) * 1e-9;
      call.first_token = double(output.timings.first_token_ns) * 1e-9;
      call.finish = now;
      call.num_preemptions = output.num_preemptions;
    }
  }
  result.num_preemptions = scheduler.num_preemptions();
  result.seconds = now;
  return result;
}

// The rows without which `calls` cannot be computed: all tokens but the last of each.
inline int64_t NeededRows(absl::Span<const SimulatedCall> calls) {
  int64_t rows = 0;
  for (const SimulatedCall& call : calls) rows += call.prompt + call.output - 1;
  return rows;
}

}  // namespace sluice::testing
