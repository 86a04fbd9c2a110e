#include "tests/scheduler/hash_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/algorithm/container.h"

namespace sluice::testing {
namespace {

uint64_t Mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdu;
  return h ^ h >> 32;
}

uint64_t HashOf(absl::Span<const int32_t> tokens) {
  uint64_t h = 1;
  for (int32_t t : tokens) h = Mix(h, uint64_t(t));
  return h;
}

float LogprobOf(absl::Span<const int32_t> context, int32_t token) {
  return -float(Mix(HashOf(context), uint64_t(token)) % 10000) / 1000;
}

int32_t Draw(absl::Span<const int32_t> context, const SamplingParams& params, int64_t position,
             absl::Span<const int32_t> outputs, absl::Span<const int32_t> masked, int32_t vocab_size) {
  uint64_t h = Mix(Mix(HashOf(context), params.seed), uint64_t(position));
  if (params.presence_penalty != 0) h = Mix(h, HashOf(outputs));
  int32_t token = int32_t(h % uint64_t(vocab_size));
  while (absl::c_linear_search(masked, token)) token = (token + 1) % vocab_size;
  return token;
}

bool Nonfinite(const SamplingParams& params, size_t num_outputs) {
  return params.seed == kNonfiniteSeed && num_outputs >= 2;
}

}  // namespace

HashRunner::HashRunner(const EngineOptions& options)
    : options_(options), kv_(size_t(options.num_blocks) * options.block_size, -1) {}

absl::StatusOr<StepResult> HashRunner::Run(const StepPlan& plan) {
  if (before_step) {
    if (absl::Status status = before_step(plan); !status.ok()) return status;
  }
  CheckShape(plan);
  CheckBlocks(plan);
  WriteKv(plan);
  StepResult result;
  for (const PromptLogprobEntry& e : plan.prompt_logprobs) {
    const int32_t row = plan.logits_rows[e.logits_index];
    const std::vector<int32_t> context = ReadContext(plan, e.sequence_index, plan.positions[row] + 1);
    TokenLogprobs logprobs;
    logprobs.chosen = {.token = e.token, .logprob = LogprobOf(context, e.token)};
    logprobs.top.resize(e.num_top);
    result.prompt_logprobs.push_back(logprobs);
  }
  for (const SampleEntry& e : plan.samples) {
    const std::vector<int32_t> context = ReadContext(plan, e.sequence_index, int32_t(e.position));
    std::vector<int32_t> tokens(e.prompt_tokens.begin(), e.prompt_tokens.end());
    tokens.insert(tokens.end(), e.output_tokens.begin(), e.output_tokens.end());
    EXPECT_EQ(context, tokens) << "the KV cache does not hold the sequence's tokens";
    EXPECT_EQ(plan.positions[plan.logits_rows[e.logits_index]], e.position - 1);
    SampledToken sampled;
    sampled.finite = !Nonfinite(*e.params, e.output_tokens.size());
    sampled.token = sampled.finite
                        ? Draw(context, *e.params, e.position, e.output_tokens, e.masked_tokens, options_.vocab_size)
                        : 0;
    if (e.params->logprobs.has_value()) {
      sampled.logprobs.chosen = {.token = sampled.token, .logprob = LogprobOf(context, sampled.token)};
    }
    result.samples.push_back(sampled);
  }
  return result;
}

void HashRunner::CheckShape(const StepPlan& plan) const {
  EXPECT_GT(plan.num_tokens(), 0);
  EXPECT_LE(plan.num_tokens(), options_.max_num_batched_tokens);
  EXPECT_LE(plan.num_seqs(), options_.max_num_seqs);
  EXPECT_EQ(plan.positions.size(), plan.token_ids.size());
  ASSERT_EQ(plan.row_starts.size(), size_t(plan.num_seqs()) + 1);
  EXPECT_EQ(plan.row_starts.front(), 0);
  EXPECT_EQ(plan.row_starts.back(), plan.num_tokens());
  ASSERT_EQ(plan.kv_groups.size(), 1u);
  EXPECT_EQ(plan.kv_groups[0].slot_mapping.size(), plan.token_ids.size());
  EXPECT_EQ(plan.kv_groups[0].block_tables.size(), size_t(plan.num_seqs()) * plan.kv_groups[0].block_table_stride);
  ASSERT_EQ(plan.seq_slots.size(), size_t(plan.num_seqs()));
  const std::set<int32_t> slots(plan.seq_slots.begin(), plan.seq_slots.end());
  EXPECT_EQ(slots.size(), plan.seq_slots.size());
  EXPECT_GE(*slots.begin(), 0);
  EXPECT_LT(*slots.rbegin(), options_.max_num_seqs);
  for (int32_t i = 0; i < plan.num_seqs(); ++i) {
    EXPECT_LT(plan.row_starts[i], plan.row_starts[i + 1]) << "a sequence without rows";
    const int32_t first = plan.context_lens[i] - (plan.row_starts[i + 1] - plan.row_starts[i]);
    for (int32_t row = plan.row_starts[i]; row < plan.row_starts[i + 1]; ++row) {
      EXPECT_EQ(plan.positions[row], first + row - plan.row_starts[i]);
    }
  }
  EXPECT_TRUE(absl::c_is_sorted(plan.logits_rows, std::less_equal<int32_t>())) << "rows not ascending or not distinct";
  EXPECT_EQ(plan.logits_rows.size(), plan.samples.size() + plan.prompt_logprobs.size());
}

void HashRunner::CheckBlocks(const StepPlan& plan) const {
  const KvGroupPlan& kv = plan.kv_groups[0];
  std::set<int32_t> seen;
  for (int32_t i = 0; i < plan.num_seqs(); ++i) {
    const int32_t num_blocks = (plan.context_lens[i] + options_.block_size - 1) / options_.block_size;
    for (int32_t b = 0; b < kv.block_table_stride; ++b) {
      const int32_t block = kv.block_tables[i * kv.block_table_stride + b];
      if (b >= num_blocks) {
        EXPECT_EQ(block, -1);
        continue;
      }
      EXPECT_GE(block, 0);
      EXPECT_LT(block, options_.num_blocks);
      EXPECT_TRUE(seen.insert(block).second) << "block " << block << " belongs to two sequences";
    }
    for (int32_t row = plan.row_starts[i]; row < plan.row_starts[i + 1]; ++row) {
      const int32_t position = plan.positions[row];
      const int32_t block = kv.block_tables[i * kv.block_table_stride + position / options_.block_size];
      EXPECT_EQ(kv.slot_mapping[row], block * options_.block_size + position % options_.block_size);
    }
  }
}

void HashRunner::WriteKv(const StepPlan& plan) {
  for (int32_t row = 0; row < plan.num_tokens(); ++row) kv_[plan.kv_groups[0].slot_mapping[row]] = plan.token_ids[row];
}

std::vector<int32_t> HashRunner::ReadContext(const StepPlan& plan, int32_t sequence_index, int32_t length) const {
  const KvGroupPlan& kv = plan.kv_groups[0];
  EXPECT_LE(length, plan.context_lens[sequence_index]);
  std::vector<int32_t> tokens;
  for (int32_t position = 0; position < length; ++position) {
    const int32_t block = kv.block_tables[sequence_index * kv.block_table_stride + position / options_.block_size];
    tokens.push_back(kv_[block * options_.block_size + position % options_.block_size]);
  }
  return tokens;
}

Expected ExpectedOutput(const Request& request, const EngineOptions& options) {
  const SamplingParams& params = request.sampling;
  std::vector<int32_t> tokens = request.prompt_tokens;
  Expected expected;
  if (params.prompt_logprobs.has_value()) {
    for (size_t i = 1; i < tokens.size(); ++i) {
      expected.prompt_logprobs.push_back(LogprobOf(absl::MakeConstSpan(tokens).first(i), tokens[i]));
    }
  }
  std::vector<int32_t> stops = params.stop_token_ids;
  stops.insert(stops.end(), options.eos_token_ids.begin(), options.eos_token_ids.end());
  while (expected.finish_reason == FinishReason::kNone) {
    if (Nonfinite(params, expected.tokens.size())) {
      expected.finish_reason = FinishReason::kError;
      break;
    }
    const bool below_min = int32_t(expected.tokens.size()) < params.min_tokens;
    const int32_t token =
        Draw(tokens, params, int64_t(tokens.size()), expected.tokens,
             below_min ? absl::MakeConstSpan(stops) : absl::Span<const int32_t>(), options.vocab_size);
    if (params.logprobs.has_value()) expected.logprobs.push_back(LogprobOf(tokens, token));
    tokens.push_back(token);
    expected.tokens.push_back(token);
    if (!params.ignore_eos && absl::c_linear_search(options.eos_token_ids, token)) {
      expected.finish_reason = FinishReason::kStop;
      expected.stop_token = token;
    } else if (absl::c_linear_search(params.stop_token_ids, token)) {
      expected.finish_reason = FinishReason::kStopSequence;
      expected.stop_token = token;
    } else if (int32_t(expected.tokens.size()) == params.max_tokens) {
      expected.finish_reason = FinishReason::kLength;
    }
  }
  return expected;
}

}  // namespace sluice::testing
