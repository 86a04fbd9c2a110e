#include "engine/scheduler/plan_builder.h"

#include <algorithm>
#include <span>

#include "engine/base/check.h"
#include "engine/scheduler/kv_blocks.h"

namespace sluice {
namespace {

int32_t ContextLen(const Sequence& s) { return s.num_computed_tokens + s.num_scheduled_tokens; }

void Clear(StepPlan* plan) {
  plan->token_ids.clear();
  plan->token_sources.clear();
  plan->positions.clear();
  plan->row_starts.clear();
  plan->context_lens.clear();
  plan->row_routes.clear();
  plan->rope_classes.clear();
  plan->adapters.clear();
  plan->seq_slots.clear();
  plan->logits_rows.clear();
  plan->samples.clear();
  plan->prompt_logprobs.clear();
}

void AddRows(const Sequence& s, StepPlan* plan) {
  for (int32_t position = s.num_computed_tokens; position < ContextLen(s); ++position) {
    const bool known = position < int32_t(s.tokens.size());
    SLUICE_CHECK(known || s.num_drawing == 1);
    plan->token_ids.push_back(known ? s.tokens[position] : 0);
    plan->token_sources.push_back(known ? -1 : s.sample_index);
    plan->positions.push_back(position);
    plan->row_routes.push_back(s.numerics.route(position));
  }
}

void FillKvGroup(absl::Span<Sequence* const> sequences, size_t group, int32_t block_size, KvGroupPlan* kv) {
  kv->slot_mapping.clear();
  kv->block_table_stride = 0;
  for (const Sequence* s : sequences) {
    kv->block_table_stride = std::max(kv->block_table_stride, BlocksFor(ContextLen(*s), block_size));
  }
  kv->block_tables.assign(sequences.size() * kv->block_table_stride, -1);
  auto row = kv->block_tables.begin();
  for (const Sequence* s : sequences) {
    const BlockTable& table = s->block_tables[group];
    const absl::Span<const int32_t> blocks = table.blocks();
    const int32_t num_entries = BlocksFor(ContextLen(*s), block_size);
    SLUICE_CHECK(table.num_dropped() <= s->num_computed_tokens / block_size && num_entries <= table.size());
    for (int32_t position = s->num_computed_tokens; position < ContextLen(*s); ++position) {
      kv->slot_mapping.push_back(blocks[position / block_size] * block_size + position % block_size);
    }
    std::copy_n(blocks.begin(), num_entries, row);
    row += kv->block_table_stride;
  }
}

// Whether the step draws behind the last token of `s`.
bool Draws(const Sequence& s) { return ContextLen(s) >= s.num_tokens(); }

// Room for the masks of all rows that are drawn under a TokenConstraint: it stays where it is while rows point into it.
void ReserveMasks(absl::Span<Sequence* const> sequences, StepPlan* plan) {
  size_t num_words = 0;
  for (const Sequence* s : sequences) {
    if (s->output_mask.follows_output() && Draws(*s)) num_words += size_t(s->num_drafts + 1) * s->output_mask.num_words();
  }
  plan->masks.clear();
  plan->masks.reserve(num_words);
}

// What may be drawn behind the last token and behind each draft.
void AddMasks(Sequence* s, absl::Span<SampleEntry> rows, StepPlan* plan) {
  OutputMask& mask = s->output_mask;
  if (!mask.follows_output()) {
    for (SampleEntry& row : rows) row.allowed_tokens = mask.fixed();
    return;
  }
  SLUICE_CHECK(s->num_drawing == 0);
  const size_t first = plan->masks.size(), num_words = size_t(mask.num_words());
  SLUICE_CHECK(first + rows.size() * num_words <= plan->masks.capacity());
  plan->masks.resize(first + rows.size() * num_words);
  mask.Fill(absl::MakeConstSpan(s->tokens).last(size_t(s->num_drafts)), absl::MakeSpan(plan->masks).subspan(first));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].allowed_tokens = std::span(plan->masks).subspan(first + i * num_words, num_words);
  }
}

void AddLogits(Sequence* sequence, int32_t sequence_index, StepPlan* plan) {
  const Sequence& s = *sequence;
  const int32_t first_row = plan->row_starts.back();
  const auto add_row = [&](int32_t position) {
    plan->logits_rows.push_back(first_row + position - s.num_computed_tokens);
    return int32_t(plan->logits_rows.size()) - 1;
  };
  const SamplingParams& sampling = s.request.sampling;
  if (sampling.prompt_logprobs.has_value()) {
    const int32_t end = std::min(ContextLen(s), s.num_prompt_tokens - 1);
    for (int32_t position = std::max(s.num_computed_tokens, s.num_prompt_logprobs); position < end; ++position) {
      plan->prompt_logprobs.push_back(PromptLogprobEntry{.logits_index = add_row(position),
                                                         .sequence_index = sequence_index,
                                                         .token = s.tokens[position + 1],
                                                         .num_top = *sampling.prompt_logprobs});
    }
  }
  if (!Draws(s)) return;
  SLUICE_CHECK(ContextLen(s) == s.num_tokens() + s.num_drafts);
  const size_t first_sample = plan->samples.size();
  for (int32_t draft = 0; draft <= s.num_drafts; ++draft) {
    const int32_t position = s.num_tokens() + draft;
    SampleEntry& entry = plan->samples.emplace_back(sampling);
    entry.logits_row = add_row(position - 1);
    entry.sequence_index = sequence_index;
    entry.position = position;
    entry.prompt_tokens = s.prompt();
    entry.output_tokens = s.output_and_drafts(draft);
    if (s.num_output_tokens() + draft < sampling.min_tokens) entry.masked_tokens = s.masked_below_min_tokens;
  }
  AddMasks(sequence, absl::MakeSpan(plan->samples).subspan(first_sample), plan);
}

}  // namespace

void BuildStepPlan(absl::Span<Sequence* const> sequences, int32_t block_size, StepPlan* plan) {
  Clear(plan);
  plan->kv_groups.resize(sequences[0]->block_tables.size());
  for (size_t group = 0; group < plan->kv_groups.size(); ++group) {
    FillKvGroup(sequences, group, block_size, &plan->kv_groups[group]);
  }
  ReserveMasks(sequences, plan);
  plan->row_starts.push_back(0);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = *sequences[i];
    SLUICE_CHECK(s.num_scheduled_tokens > 0);
    AddRows(s, plan);
    AddLogits(sequences[i], int32_t(i), plan);
    plan->row_starts.push_back(plan->num_tokens());
    plan->context_lens.push_back(ContextLen(s));
    plan->rope_classes.push_back(s.numerics.rope_class);
    plan->adapters.push_back(s.numerics.adapter);
    plan->seq_slots.push_back(s.slot);
  }
}

}  // namespace sluice
