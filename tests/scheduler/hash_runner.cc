#include "tests/scheduler/hash_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "engine/base/status_macros.h"
#include "engine/base/token_bitmask.h"
#include "engine/error_reason.h"
#include "engine/token_constraint.h"

namespace sluice::testing {
namespace {

uint64_t Mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdu;
  return h ^ h >> 32;
}

uint64_t HashOf(absl::Span<const int32_t> tokens, uint64_t h = 1) {
  for (int32_t t : tokens) h = Mix(h, uint64_t(t));
  return h;
}

// Of a token at `position` and of what its row depends on; `before`: of the token before it, which does not count where no
// layer sees that.
uint64_t Digest(uint64_t before, int32_t position, int32_t token, RowRoute route, int32_t rope_class, int32_t adapter,
                const EngineOptions& options) {
  const bool seen = absl::c_any_of(options.kv_groups, [&](const AttentionMask& mask) {
    return FirstVisibleKey(mask, position) < position;
  });
  const uint64_t h = Mix(Mix(seen ? before : 7, uint64_t(token)), uint64_t(route) << 32 | uint64_t(uint32_t(rope_class)));
  return Mix(h, uint64_t(adapter));
}

// The digests of the tokens of a request.
class Digests {
 public:
  Digests(const Request& request, const EngineOptions& options)
      : options_(options),
        numerics_(options.numerics, int32_t(request.prompt_tokens.size()), request.sampling.max_tokens, request.adapter) {
    for (const int32_t token : request.prompt_tokens) Add(token);
  }
  void Add(int32_t token) {
    const auto position = int32_t(digests_.size());
    digests_.push_back(Digest(position == 0 ? 1 : digests_.back(), position, token, numerics_.route(position),
                              numerics_.rope_class, numerics_.adapter, options_));
  }
  // Of what a query at `position` sees in each KV group.
  uint64_t HashVisible(int32_t position) const {
    uint64_t h = 1;
    for (const AttentionMask& mask : options_.kv_groups) {
      for (int32_t key = FirstVisibleKey(mask, position); key <= position; ++key) h = Mix(h, digests_[size_t(key)]);
    }
    return h;
  }

 private:
  const EngineOptions& options_;
  const RequestNumerics numerics_;
  std::vector<uint64_t> digests_;
};

float LogprobOf(uint64_t context, int32_t token) { return -float(Mix(context, uint64_t(token)) % 10000) / 1000; }

// Of the tokens that `allowed` is true of the first from a random one on; -1: there are none.
int32_t Draw(uint64_t context, const SamplingParams& params, int64_t position, absl::Span<const int32_t> outputs,
             const std::vector<bool>& allowed) {
  uint64_t h = Mix(Mix(context, params.seed), uint64_t(position));
  if (params.presence_penalty != 0) h = Mix(h, HashOf(outputs));
  const size_t first = size_t(h % allowed.size());
  for (size_t i = 0; i < allowed.size(); ++i) {
    const size_t token = (first + i) % allowed.size();
    if (allowed[token]) return int32_t(token);
  }
  return -1;
}

// What a row of a plan lets be drawn.
std::vector<bool> AllowedBy(const SampleRow& row, int32_t vocab_size) {
  std::vector<bool> allowed(size_t(vocab_size), true);
  if (!row.allowed_tokens.empty()) {
    EXPECT_EQ(row.allowed_tokens.size(), size_t(TokenBitmaskWords(vocab_size)));
    for (int32_t token = 0; token < vocab_size; ++token) allowed[size_t(token)] = HasToken(row.allowed_tokens, token);
  }
  for (int32_t token : row.masked_tokens) allowed[size_t(token)] = false;
  return allowed;
}

// What a request lets be drawn in the state of its `constraint`, null if it has none, by the contracts of engine/request.h and
// engine/token_constraint.h.
std::vector<bool> AllowedBy(const SamplingParams& params, TokenConstraint* constraint, bool below_min_tokens,
                            const EngineOptions& options) {
  std::vector<bool> allowed(size_t(options.vocab_size), true);
  if (constraint != nullptr) {
    std::vector<uint32_t> words(size_t(TokenBitmaskWords(options.vocab_size)), 0xdeadbeef);
    constraint->FillMask(words);
    for (int32_t token = 0; token < options.vocab_size; ++token) allowed[size_t(token)] = HasToken(words, token);
    for (int32_t token : options.eos_token_ids) allowed[size_t(token)] = constraint->may_stop() && !params.ignore_eos;
    if (constraint->may_stop()) {
      for (int32_t token : params.stop_token_ids) allowed[size_t(token)] = true;
    }
  }
  for (int32_t token = 0; token < options.vocab_size && !params.allowed_token_ids.empty(); ++token) {
    if (!absl::c_linear_search(params.allowed_token_ids, token)) allowed[size_t(token)] = false;
  }
  if (!below_min_tokens) return allowed;
  for (int32_t token : options.eos_token_ids) allowed[size_t(token)] = false;
  for (int32_t token : params.stop_token_ids) allowed[size_t(token)] = false;
  return allowed;
}

bool Nonfinite(const SamplingParams& params, size_t num_outputs) {
  return params.seed == kNonfiniteSeed && num_outputs >= 2;
}

}  // namespace

HashRunner::HashRunner(const EngineOptions& options, bool launches_async)
    : options_(options),
      runs_ahead_(launches_async),
      kv_(size_t(options.num_blocks) * options.block_size),
      tokens_(options.max_num_seqs),
      digests_(options.max_num_seqs) {}

absl::Status HashRunner::Launch(const StepPlan& plan) {
  if (before_step) SLUICE_RETURN_IF_ERROR(before_step(plan));
  EXPECT_LE(in_flight_.size(), runs_ahead_ ? 1u : 0u);
  StepPlan resolved = plan;
  ResolveTokens(&resolved);
  in_flight_.push_back(Compute(resolved));
  return absl::OkStatus();
}

absl::StatusOr<StepResult> HashRunner::Take() {
  if (before_take) SLUICE_RETURN_IF_ERROR(before_take());
  StepResult result = std::move(in_flight_.front());
  in_flight_.pop_front();
  return result;
}

void HashRunner::ResolveTokens(StepPlan* plan) {
  EXPECT_EQ(plan->token_sources.size(), plan->token_ids.size());
  for (size_t row = 0; row < plan->token_sources.size(); ++row) {
    const int32_t source = plan->token_sources[row];
    if (source < 0) continue;
    ASSERT_FALSE(in_flight_.empty()) << "a token from a step that is over";
    ASSERT_LT(size_t(source), in_flight_.back().samples.size());
    EXPECT_EQ(plan->token_ids[row], 0);
    plan->token_ids[row] = in_flight_.back().samples[size_t(source)].token;
    ++num_unknown_tokens;
  }
}

StepResult HashRunner::Compute(const StepPlan& plan) {
  CheckShape(plan);
  CheckBlocks(plan);
  WriteKv(plan);
  CheckVisibleKeys(plan);
  StepResult result;
  for (const PromptLogprobEntry& e : plan.prompt_logprobs) {
    const int32_t row = plan.logits_rows[e.logits_index];
    const uint64_t context = HashVisible(plan, e.sequence_index, plan.positions[row]);
    TokenLogprobs logprobs;
    logprobs.chosen = {.token = e.token, .logprob = LogprobOf(context, e.token)};
    logprobs.top.resize(e.num_top);
    result.prompt_logprobs.push_back(logprobs);
  }
  for (const SampleEntry& e : plan.samples) {
    const uint64_t context = HashVisible(plan, e.sequence_index, int32_t(e.position) - 1);
    std::vector<int32_t> tokens(e.prompt_tokens.begin(), e.prompt_tokens.end());
    tokens.insert(tokens.end(), e.output_tokens.begin(), e.output_tokens.end());
    // Those behind it are drafts.
    std::vector<int32_t> rows = tokens_[plan.seq_slots[e.sequence_index]];
    EXPECT_LE(size_t(e.position), rows.size());
    rows.resize(size_t(e.position));
    if (plan.token_sources[plan.logits_rows[e.logits_row]] >= 0) {
      // The one that nobody knew when the step was planned; no penalty may want it.
      EXPECT_EQ(e.params->presence_penalty, 0);
      rows.pop_back();
    }
    for (size_t i = 0; i < rows.size() && i < tokens.size(); ++i) {
      if (rows[i] < 0) rows[i] = tokens[i];  // nobody can say
    }
    EXPECT_EQ(rows, tokens) << "its rows were not the sequence's tokens";
    EXPECT_EQ(plan.positions[plan.logits_rows[e.logits_row]], e.position - 1);
    SampledToken sampled;
    const int32_t token =
        Draw(context, *e.params, e.position, e.output_tokens, AllowedBy(e, options_.vocab_size));
    sampled.finite = token >= 0 && !Nonfinite(*e.params, size_t(e.position) - e.prompt_tokens.size());
    sampled.token = sampled.finite ? token : 0;
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
  ASSERT_EQ(plan.kv_groups.size(), options_.kv_groups.size());
  for (const KvGroupPlan& group : plan.kv_groups) {
    EXPECT_EQ(group.slot_mapping.size(), plan.token_ids.size());
    EXPECT_EQ(group.block_tables.size(), size_t(plan.num_seqs()) * group.block_table_stride);
  }
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
  // Who has the block: one entry of one group, of several sequences if they only read it.
  std::map<int32_t, std::pair<size_t, int32_t>> places;
  std::map<int32_t, int32_t> holders, writers;
  for (size_t g = 0; g < plan.kv_groups.size(); ++g) {
    const KvGroupPlan& group = plan.kv_groups[g];
    for (int32_t i = 0; i < plan.num_seqs(); ++i) {
      const int32_t first_key = FirstVisibleKey(options_.kv_groups[g], plan.positions[plan.row_starts[i]]);
      const int32_t num_blocks = (plan.context_lens[i] + options_.block_size - 1) / options_.block_size;
      for (int32_t b = 0; b < group.block_table_stride; ++b) {
        const int32_t block = group.block_tables[i * group.block_table_stride + b];
        if (b < first_key / options_.block_size || b >= num_blocks) {
          EXPECT_EQ(block, -1) << "a block that nobody can see was not given back";
          continue;
        }
        EXPECT_GE(block, 0);
        EXPECT_LT(block, options_.num_blocks);
        ++holders[block];
        EXPECT_EQ(places.try_emplace(block, g, b).first->second, (std::pair<size_t, int32_t>(g, b)))
            << "block " << block << " is in two groups or places";
      }
      for (int32_t row = plan.row_starts[i]; row < plan.row_starts[i + 1]; ++row) {
        const int32_t position = plan.positions[row];
        const int32_t block = group.block_tables[i * group.block_table_stride + position / options_.block_size];
        EXPECT_EQ(group.slot_mapping[row], block * options_.block_size + position % options_.block_size);
        writers[block] = i;
      }
    }
  }
  for (const auto& [block, writer] : writers) {
    EXPECT_EQ(holders[block], 1) << "block " << block << " is written by one sequence and held by others";
  }
}

void HashRunner::ReadTakenPrefix(const StepPlan& plan, int32_t sequence_index) {
  std::vector<int32_t>& tokens = tokens_[plan.seq_slots[sequence_index]];
  std::vector<uint64_t>& digests = digests_[plan.seq_slots[sequence_index]];
  const int32_t first = plan.positions[plan.row_starts[sequence_index]];
  // Whoever has the slot now need not be who had it before, and need not have computed all that was computed in it.
  tokens.assign(size_t(first), -1);
  digests.assign(size_t(first), 1);
  for (size_t g = 0; g < plan.kv_groups.size(); ++g) {
    for (int32_t position = FirstVisibleKey(options_.kv_groups[g], first); position < first; ++position) {
      const CachedKey& key = KeyAt(plan.kv_groups[g], sequence_index, position);
      tokens[size_t(position)] = key.token;
      digests[size_t(position)] = key.digest;
    }
  }
}

void HashRunner::WriteKv(const StepPlan& plan) {
  num_rows += plan.num_tokens();
  // What rows of this step write none of its sequences may have taken before.
  for (int32_t i = 0; i < plan.num_seqs(); ++i) ReadTakenPrefix(plan, i);
  for (int32_t i = 0; i < plan.num_seqs(); ++i) {
    std::vector<int32_t>& tokens = tokens_[plan.seq_slots[i]];
    std::vector<uint64_t>& digests = digests_[plan.seq_slots[i]];
    for (int32_t row = plan.row_starts[i]; row < plan.row_starts[i + 1]; ++row) {
      const int32_t position = plan.positions[row], token = plan.token_ids[row];
      const uint64_t digest = Digest(position == 0 ? 1 : digests.back(), position, token, plan.row_routes[row],
                                     plan.rope_classes[i], plan.adapters[i], options_);
      tokens.push_back(token);
      digests.push_back(digest);
      for (size_t g = 0; g < plan.kv_groups.size(); ++g) {
        kv_[plan.kv_groups[g].slot_mapping[row]] = {int32_t(g), position, token, digest};
      }
    }
  }
}

const HashRunner::CachedKey& HashRunner::KeyAt(const KvGroupPlan& group, int32_t sequence_index,
                                               int32_t position) const {
  static const CachedKey kNone;
  const int32_t block = group.block_tables[sequence_index * group.block_table_stride + position / options_.block_size];
  return block < 0 ? kNone : kv_[block * options_.block_size + position % options_.block_size];
}

void HashRunner::CheckVisibleKeys(const StepPlan& plan) const {
  for (int32_t i = 0; i < plan.num_seqs(); ++i) {
    const std::vector<int32_t>& tokens = tokens_[plan.seq_slots[i]];
    ASSERT_EQ(tokens.size(), size_t(plan.context_lens[i]));
    for (size_t g = 0; g < plan.kv_groups.size(); ++g) {
      // What the first row sees and the others see behind it; no row sees a key before.
      const int32_t first_key = FirstVisibleKey(options_.kv_groups[g], plan.positions[plan.row_starts[i]]);
      for (int32_t position = first_key; position < plan.context_lens[i]; ++position) {
        const CachedKey expected{int32_t(g), position, tokens[position], digests_[plan.seq_slots[i]][position]};
        ASSERT_EQ(KeyAt(plan.kv_groups[g], i, position), expected)
            << "group " << g << " has lost position " << position << " of the sequence in slot " << plan.seq_slots[i];
      }
    }
  }
}

uint64_t HashRunner::HashVisible(const StepPlan& plan, int32_t sequence_index, int32_t position) const {
  EXPECT_LT(position, plan.context_lens[sequence_index]);
  uint64_t h = 1;
  for (size_t g = 0; g < plan.kv_groups.size(); ++g) {
    for (int32_t key = FirstVisibleKey(options_.kv_groups[g], position); key <= position; ++key) {
      h = Mix(h, KeyAt(plan.kv_groups[g], sequence_index, key).digest);
    }
  }
  return h;
}

Request ShortOutput(const EngineOptions& options) {
  Request request;
  request.prompt_tokens = {1};
  request.sampling.max_tokens = 9;
  request.sampling.ignore_eos = true;
  for (;; ++request.sampling.seed) {
    const std::vector<int32_t> tokens = ExpectedOutput(request, options).tokens;
    if (tokens[0] == tokens[1]) continue;
    request.sampling.stop_token_ids = {tokens[1]};
    return request;
  }
}

Expected ExpectedOutput(const Request& request, const EngineOptions& options) {
  const SamplingParams& params = request.sampling;
  Digests digests(request, options);
  auto num_tokens = int32_t(request.prompt_tokens.size());
  Expected expected;
  if (params.prompt_logprobs.has_value()) {
    for (int32_t i = 1; i < num_tokens; ++i) {
      expected.prompt_logprobs.push_back(LogprobOf(digests.HashVisible(i - 1), request.prompt_tokens[size_t(i)]));
    }
  }
  const std::unique_ptr<TokenConstraint> constraint =
      request.constraint != nullptr ? request.constraint->Clone() : nullptr;
  while (expected.finish_reason == FinishReason::kNone) {
    const uint64_t context = digests.HashVisible(num_tokens - 1);
    const bool below_min = int32_t(expected.tokens.size()) < params.min_tokens;
    const int32_t token = Draw(context, params, int64_t{num_tokens}, expected.tokens,
                               AllowedBy(params, constraint.get(), below_min, options));
    if (token < 0) {
      expected.finish_reason = constraint->may_stop() ? FinishReason::kStop : FinishReason::kError;
      if (!constraint->may_stop()) expected.error_reason = kReasonNoTokenAllowed;
      break;
    }
    if (Nonfinite(params, expected.tokens.size())) {
      expected.finish_reason = FinishReason::kError;
      expected.error_reason = kReasonNonfiniteLogits;
      break;
    }
    if (params.logprobs.has_value()) expected.logprobs.push_back(LogprobOf(context, token));
    digests.Add(token);
    ++num_tokens;
    expected.tokens.push_back(token);
    if (!params.ignore_eos && absl::c_linear_search(options.eos_token_ids, token)) {
      expected.finish_reason = FinishReason::kStop;
      expected.stop_token = token;
    } else if (absl::c_linear_search(params.stop_token_ids, token)) {
      expected.finish_reason = FinishReason::kStopSequence;
      expected.stop_token = token;
    } else if (constraint != nullptr) {
      EXPECT_TRUE(constraint->Advance(token));
      if (constraint->is_finished()) expected.finish_reason = FinishReason::kStop;
    }
    const bool is_last = int32_t(expected.tokens.size()) == params.max_tokens;
    if (is_last && expected.finish_reason == FinishReason::kNone) expected.finish_reason = FinishReason::kLength;
  }
  return expected;
}

}  // namespace sluice::testing
