// One step as flat arrays: all that the device side sees of the scheduler.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/numerics.h"
#include "engine/base/sample_row.h"
#include "engine/base/token_logprobs.h"
#include "engine/request.h"

namespace sluice {

// Where the rows of the step live in one KV group. Layers of a model name the group they use (LayerSpec::kv_group).
struct KvGroupPlan {
  std::vector<int32_t> slot_mapping;  // [num_tokens] block * block_size + offset: where a row's K and V are written
  // [num_seqs, block_table_stride] blocks of a sequence in order; -1 after its last one, and before the one with the
  // first key that the sequence's first row in the step sees
  std::vector<int32_t> block_tables;
  int32_t block_table_stride = 0;
};

// A row of logits from which a token is drawn, and whose it is; logits_row is an index into StepPlan::logits_rows. A sequence
// with drafted tokens has several in a step: behind its last known token and behind each draft, in order, each as if the drafts
// before it were right. Pointers and spans live until StepRunner::Launch has returned.
struct SampleEntry : SampleRow {
  // The row of a request that says `sampling`; its place, its tokens and its masks are still to be filled in.
  explicit SampleEntry(const SamplingParams& sampling) : params(&sampling) {
    static_cast<DrawParams&>(*this) = sampling;
    logit_bias = sampling.logit_bias;
    num_logprobs = sampling.logprobs;
  }

  int32_t sequence_index = 0;    // into the plan's sequences
  const SamplingParams* params;  // what else the request says, for whoever stands in for a device
};

// A prompt row whose next token is known: only its log-probability is wanted.
struct PromptLogprobEntry {
  int32_t logits_index = 0;
  int32_t sequence_index = 0;
  int32_t token = 0;  // the prompt token that follows the row
  int32_t num_top = 0;
};

struct StepPlan {
  // One row per token to compute; rows of a sequence are adjacent, positions ascending.
  std::vector<int32_t> token_ids;  // [num_tokens]
  // [num_tokens] -1, or for a token that the step launched before this one draws, and that nobody knows yet, its index
  // among that step's samples; token_ids is 0 there
  std::vector<int32_t> token_sources;
  std::vector<int32_t> positions;     // [num_tokens]
  std::vector<int32_t> row_starts;    // [num_seqs + 1] first row of each sequence
  std::vector<int32_t> context_lens;  // [num_seqs] tokens in the KV cache once this step has run
  std::vector<RowRoute> row_routes;   // [num_tokens] base/numerics.h
  std::vector<int32_t> rope_classes;  // [num_seqs]
  std::vector<int32_t> adapters;      // [num_seqs] 0: none
  std::vector<int32_t> seq_slots;  // [num_seqs] in [0, max_num_seqs): the sequence's own from admission until it ends
                                   // or is preempted, so that a device can keep a row of state for it
  std::vector<KvGroupPlan> kv_groups;
  std::vector<int32_t> logits_rows;  // [num_logits] rows whose logits are needed, ascending
  std::vector<SampleEntry> samples;
  std::vector<uint32_t> masks;  // what allowed_tokens of samples with a TokenConstraint point into
  std::vector<PromptLogprobEntry> prompt_logprobs;

  int32_t num_tokens() const { return int32_t(token_ids.size()); }
  int32_t num_seqs() const { return int32_t(context_lens.size()); }
};

struct SampledToken {
  int32_t token = 0;
  // False: the logits held a NaN, or no finite value of a token that may be drawn; token is any, inside the vocabulary.
  bool finite = true;
  TokenLogprobs logprobs;  // filled if num_logprobs is set
};

struct StepResult {
  std::vector<SampledToken> samples;           // parallel to StepPlan::samples
  std::vector<TokenLogprobs> prompt_logprobs;  // parallel to StepPlan::prompt_logprobs
};

}  // namespace sluice
