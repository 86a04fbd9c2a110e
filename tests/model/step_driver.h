// Drives a StepRunner by hand: sequences, their KV blocks and the plan of each step, without a scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "engine/request.h"
#include "engine/runtime/runner.h"
#include "engine/scheduler/step_plan.h"

namespace sluice::testing {

struct TestSequence {
  std::vector<int32_t> tokens;  // prompt, then what was generated
  int32_t num_prompt = 0;
  int32_t max_tokens = 0;  // that may follow, for what depends on the length
  int32_t num_computed = 0;
  std::vector<std::vector<int32_t>> blocks;  // by KV group
  SamplingParams params;
  std::vector<uint32_t> allowed_tokens;  // SampleRow::allowed_tokens
  std::vector<TokenLogprobs> logprobs;  // of generated tokens, if asked for
};

// Temperature 0, with the log-probability of each chosen token.
SamplingParams Greedy();

class StepDriver {
 public:
  // Blocks are handed out in an order drawn from `seed`.
  StepDriver(Runner* runner, uint32_t seed = 1);

  TestSequence* Add(std::vector<int32_t> prompt, SamplingParams params = Greedy());
  // Gives the blocks back; the sequence can be computed again from its first token (as after a preemption).
  void DropCache(TestSequence* sequence);

  struct Part {
    TestSequence* sequence;
    int32_t num_tokens;  // to compute now
  };
  // One step. A sequence whose tokens are all computed by it gets a new one.
  void Step(const std::vector<Part>& parts);

  // Computes `sequence` alone, `chunk` tokens of its prompt at a time, until it has `num_new` new tokens.
  void Generate(TestSequence* sequence, int32_t chunk, int32_t num_new);

  // Logits of all rows of `tokens`, `chunk` of them in a step (0: as many as the runner keeps logits for), in a cache
  // of its own: [num tokens][vocab].
  std::vector<std::vector<float>> AllLogits(const std::vector<int32_t>& tokens, int32_t chunk = 0);

  // Log-probabilities of tokens 1.. of `tokens`, computed `max_num_batched_tokens` at a time.
  std::vector<float> PromptLogprobs(const std::vector<int32_t>& tokens);

 private:
  StepPlan NewPlan() const;
  void AddToPlan(const Part& part, bool all_logits, StepPlan* plan);
  // Once all parts are in.
  void AddBlockTables(const std::vector<Part>& parts, StepPlan* plan) const;

  Runner* const runner_;
  size_t num_groups_ = 1;
  std::vector<int32_t> free_blocks_;
  std::vector<std::unique_ptr<TestSequence>> sequences_;
};

}  // namespace sluice::testing
