#include "tests/model/step_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "engine/base/check.h"

namespace sluice::testing {

StepDriver::StepDriver(Runner* runner, uint32_t seed) : runner_(runner) {
  free_blocks_.resize(size_t(runner->options().num_blocks));
  std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), std::mt19937(seed));
  for (const LayerSpec& layer : runner->spec().layers) num_groups_ = std::max(num_groups_, size_t(layer.kv_group) + 1);
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  params.logprobs = 0;
  return params;
}

TestSequence* StepDriver::Add(std::vector<int32_t> prompt, SamplingParams params) {
  sequences_.push_back(std::make_unique<TestSequence>());
  TestSequence* sequence = sequences_.back().get();
  sequence->num_prompt = int32_t(prompt.size());
  sequence->blocks.resize(num_groups_);
  sequence->tokens = std::move(prompt);
  sequence->params = std::move(params);
  return sequence;
}

void StepDriver::DropCache(TestSequence* sequence) {
  for (std::vector<int32_t>& blocks : sequence->blocks) {
    free_blocks_.insert(free_blocks_.begin(), blocks.begin(), blocks.end());
    blocks.clear();
  }
  sequence->num_computed = 0;
}

StepPlan StepDriver::NewPlan() const {
  StepPlan plan;
  plan.row_starts = {0};
  plan.kv_groups.resize(num_groups_);
  return plan;
}

void StepDriver::AddBlockTables(const std::vector<Part>& parts, StepPlan* plan) const {
  for (size_t g = 0; g < num_groups_; ++g) {
    KvGroupPlan& group = plan->kv_groups[g];
    for (const Part& part : parts) {
      group.block_table_stride = std::max(group.block_table_stride, int32_t(part.sequence->blocks[g].size()));
    }
    for (const Part& part : parts) {
      std::vector<int32_t> row = part.sequence->blocks[g];
      row.resize(size_t(group.block_table_stride), -1);
      group.block_tables.insert(group.block_tables.end(), row.begin(), row.end());
    }
  }
}

void StepDriver::AddToPlan(const Part& part, bool all_logits, StepPlan* plan) {
  TestSequence& s = *part.sequence;
  const int32_t block_size = runner_->options().block_size;
  const int32_t end = s.num_computed + part.num_tokens;
  SLUICE_CHECK(end <= int32_t(s.tokens.size()));
  EngineOptions options;
  runner_->SetEngineOptions(&options);
  const RequestNumerics numerics(options.numerics, s.num_prompt, s.max_tokens);
  for (std::vector<int32_t>& blocks : s.blocks) {
    while (int32_t(blocks.size()) * block_size < end) {
      SLUICE_CHECK(!free_blocks_.empty());
      blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
  }
  for (int32_t position = s.num_computed; position < end; ++position) {
    plan->token_ids.push_back(s.tokens[size_t(position)]);
    plan->positions.push_back(position);
    plan->row_routes.push_back(numerics.route(position));
    for (size_t g = 0; g < num_groups_; ++g) {
      plan->kv_groups[g].slot_mapping.push_back(s.blocks[g][size_t(position / block_size)] * block_size +
                                                position % block_size);
    }
    if (all_logits || position + 1 == int32_t(s.tokens.size())) plan->logits_rows.push_back(plan->num_tokens() - 1);
  }
  plan->seq_slots.push_back(plan->num_seqs());
  plan->context_lens.push_back(end);
  plan->rope_classes.push_back(numerics.rope_class);
  plan->row_starts.push_back(plan->num_tokens());
}

void StepDriver::Step(const std::vector<Part>& parts) {
  StepPlan plan = NewPlan();
  std::vector<TestSequence*> sampled;
  for (const Part& part : parts) {
    AddToPlan(part, /*all_logits=*/false, &plan);
    TestSequence& s = *part.sequence;
    s.num_computed += part.num_tokens;
    if (s.num_computed < int32_t(s.tokens.size())) continue;
    SampleEntry& entry = plan.samples.emplace_back(s.params);
    entry.logits_row = int32_t(plan.logits_rows.size()) - 1;
    entry.sequence_index = plan.num_seqs() - 1;
    entry.position = int64_t(s.tokens.size());
    entry.prompt_tokens = std::span(s.tokens).first(size_t(s.num_prompt));
    entry.output_tokens = std::span(s.tokens).subspan(size_t(s.num_prompt));
    entry.allowed_tokens = s.allowed_tokens;
    sampled.push_back(&s);
  }
  AddBlockTables(parts, &plan);
  absl::StatusOr<StepResult> result = runner_->Run(plan);
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t i = 0; i < sampled.size(); ++i) {
    EXPECT_TRUE(result->samples[i].finite);
    sampled[i]->tokens.push_back(result->samples[i].token);
    sampled[i]->logprobs.push_back(std::move(result->samples[i].logprobs));
  }
}

void StepDriver::Generate(TestSequence* sequence, int32_t chunk, int32_t num_new) {
  while (int32_t(sequence->tokens.size()) < sequence->num_prompt + num_new) {
    const int32_t left = int32_t(sequence->tokens.size()) - sequence->num_computed;
    Step({{sequence, std::min(left, chunk)}});
  }
}

std::vector<std::vector<float>> StepDriver::AllLogits(const std::vector<int32_t>& tokens, int32_t chunk) {
  if (chunk == 0) chunk = runner_->options().max_num_seqs;
  SLUICE_CHECK(chunk <= runner_->options().max_num_seqs);
  std::vector<std::vector<float>> logits;
  TestSequence* sequence = Add(tokens);
  while (sequence->num_computed < int32_t(tokens.size())) {
    const int32_t left = int32_t(tokens.size()) - sequence->num_computed;
    StepPlan plan = NewPlan();
    const int32_t count = std::min(left, chunk);
    AddToPlan({sequence, count}, /*all_logits=*/true, &plan);
    AddBlockTables({{sequence, count}}, &plan);
    absl::StatusOr<StepResult> result = runner_->Run(plan);
    EXPECT_TRUE(result.ok()) << result.status();
    for (int32_t row = 0; row < count; ++row) {
      logits.emplace_back(size_t(runner_->spec().vocab_size));
      EXPECT_TRUE(runner_->ops().CopyLogits(row, logits.back()).ok());
    }
    sequence->num_computed += count;
  }
  DropCache(sequence);
  return logits;
}

std::vector<float> StepDriver::PromptLogprobs(const std::vector<int32_t>& tokens) {
  std::vector<float> logprobs;
  TestSequence* sequence = Add(tokens);
  while (sequence->num_computed + 1 < int32_t(tokens.size())) {
    const int32_t left = int32_t(tokens.size()) - 1 - sequence->num_computed;
    StepPlan plan = NewPlan();
    const int32_t count = std::min(left, runner_->options().max_num_batched_tokens);
    AddToPlan({sequence, count}, /*all_logits=*/true, &plan);
    AddBlockTables({{sequence, count}}, &plan);
    for (int32_t row = 0; row < count; ++row) {
      PromptLogprobEntry& entry = plan.prompt_logprobs.emplace_back();
      entry.logits_index = row;
      entry.token = tokens[size_t(sequence->num_computed + row + 1)];
    }
    absl::StatusOr<StepResult> result = runner_->Run(plan);
    EXPECT_TRUE(result.ok()) << result.status();
    for (const TokenLogprobs& entry : result->prompt_logprobs) logprobs.push_back(entry.chosen.logprob);
    sequence->num_computed += count;
  }
  DropCache(sequence);
  return logprobs;
}

}  // namespace sluice::testing
