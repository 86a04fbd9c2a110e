// Where one request stands.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/numerics.h"
#include "engine/engine_options.h"
#include "engine/request.h"
#include "engine/scheduler/block_pool.h"
#include "engine/scheduler/kv_key.h"
#include "engine/scheduler/output_mask.h"

namespace sluice {

// There is no prefill phase and no decode phase: `num_computed_tokens` chases the number of tokens, and whenever it
// catches up a new token is drawn. A step counts from the moment it is planned: what it computes is computed, and the
// token that it draws is there, though unknown until the step is committed (num_drawing). A preempted sequence starts
// again from 0 with the tokens it has.
//
// A step may compute rows of drafted tokens behind the last known one, and draw behind each of them (TokenDrafter). Until it
// is committed nobody knows how many tokens the sequence has, so it has no rows in the step after; then the drafts that
// were right are tokens, the others and what was computed of them are forgotten, and there are none.
struct Sequence {
  // Takes the prompt out of `request` into `tokens`. REQUIRES: ValidateRequest(request, options).ok()
  Sequence(SequenceId id, Request request, const EngineOptions& options, BlockPool* pool, int64_t arrival_ns);

  int32_t num_known_tokens() const { return int32_t(tokens.size()) - num_drafts; }
  int32_t num_tokens() const { return num_known_tokens() + num_drawing; }
  int32_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
  int32_t num_remaining_tokens() const { return num_tokens() - num_computed_tokens; }  // at least 1
  bool running() const { return slot >= 0; }
  absl::Span<const int32_t> prompt() const { return absl::MakeConstSpan(tokens).first(num_prompt_tokens); }
  absl::Span<const int32_t> output() const { return output_and_drafts(0); }
  // The known output tokens and the first `count` drafts.
  absl::Span<const int32_t> output_and_drafts(int32_t count) const {
    return absl::MakeConstSpan(tokens).subspan(num_prompt_tokens, num_known_tokens() + count - num_prompt_tokens);
  }
  // True if the tokens drawn and being drawn are as many as may be: whatever they are, no more will follow.
  bool draws_its_last() const { return num_output_tokens() >= request.sampling.max_tokens; }

  // False: nothing the engine knows of ends it before max_tokens.
  bool can_stop_early() const {
    return !request.sampling.ignore_eos || !request.sampling.stop_token_ids.empty() || output_mask.follows_output();
  }

  // What the newest known output token means for the sequence: kNone, kStop, kStopSequence or kLength. Below min_tokens
  // nothing stops it. The context cannot be used up before max_tokens is: ValidateRequest sees to it.
  // REQUIRES: there is one
  FinishReason CheckStop(absl::Span<const int32_t> eos_token_ids) const;

  const SequenceId id;
  SequenceId first_sibling = 0;  // of the sequences submitted together with this one, the first
  Request request;              // prompt_tokens is empty: they are the first of `tokens`
  std::vector<int32_t> tokens;  // those known: prompt, then output; then drafts
  const int32_t num_prompt_tokens;
  const RequestNumerics numerics;
  // Stands behind the last known token: it is advanced by what is committed, never by a draft, and stays through preemptions.
  OutputMask output_mask;
  std::vector<int32_t> masked_below_min_tokens;  // end and stop tokens, ascending; empty if min_tokens is 0

  int32_t num_drafts = 0;                // at the end of `tokens`; rows of a step in flight or being planned
  int32_t num_computed_tokens = 0;       // tokens, drafts not counted, whose K and V are in the tables, or were until nobody could see them
  int32_t num_scheduled_tokens = 0;      // rows of the step being planned; 0 otherwise
  int32_t num_drawing = 0;               // tokens that steps in flight draw; with drafts one, as if all were wrong
  int32_t sample_index = -1;             // of the last of them among the samples of its step
  int32_t num_steps_in_flight = 0;       // steps that hold rows of this sequence
  bool ended = false;                    // the last output is out; what steps in flight say of it is dropped
  std::vector<BlockTable> block_tables;  // by KV group
  int32_t slot = -1;                     // StepPlan::seq_slots; -1 while waiting

  // Of the prefix cache (prefix_cache.h).
  KvSalt salt = 0;
  std::vector<KvKeyId> block_ids;    // names of the full blocks of its known tokens, of the first ones, as far as they were needed
  int32_t num_published_blocks = 0;  // full blocks at the front that the index has been told of, or that come from it
  int32_t num_cached_tokens = 0;     // prompt tokens taken from the cache before it had ever computed them
  int32_t most_computed_tokens = 0;  // num_computed_tokens at its preemptions, the largest
  bool ever_looked_up = false;

  int32_t num_prompt_logprobs = 0;  // delivered so far
  int32_t num_preemptions = 0;
  bool ever_scheduled = false;
  bool prompt_counted = false;  // in Scheduler::num_prompt_tokens()
  RequestTimings timings;
};

}  // namespace sluice
