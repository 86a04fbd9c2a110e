// From sequences and budgets to the next step. Pure bookkeeping: no threads, no device, no clock of its own.
//
// A step hands out at most max_num_batched_tokens rows:
//   1. every running sequence that lacks one token gets its row, oldest first; one that needs a block when none is
//      left preempts the newest running sequence (perhaps itself);
//   2. if nobody was preempted, waiting sequences are admitted in order of arrival. The first that does not fit ends
//      the round: no small request overtakes a big one for ever;
//   3. running sequences that lack more (a prompt, or what a preempted one had) share what remains of the rows, or
//      beside decodes what max_prefill_tokens_beside_decodes leaves of it: shortest first, a quarter for the oldest
//      (prompt_shares.h);
//   4. rows and blocks that nobody has asked for go to drafted tokens of those who have one row (token_drafter.h).
// A sequence has a block table per KV group. After each step blocks that no later query of it can see leave the table:
// while it lacks blocks for tokens it has (a prompt in chunks), they serve it again, then they go back to the pool.
// Admission takes the blocks that all tokens of the sequence need at a time (PeakBlocks), so only a growing output can
// run out of blocks; and it admits only if the pool is expected to carry everyone who runs to the end of their outputs,
// as long as outputs recently have been (kv_forecast.h). That holds for a preempted sequence too: it waits until it can
// go on. Whoever is alone is admitted.
// With a prefix cache (prefix_cache.h) a sequence that is admitted takes what is computed of its prefix already: those rows are
// computed no more, those blocks taken once for all who hold them, and only what is left counts in the above. A prompt whose
// next block another one completes in a step has no rows in it, and takes that block in the next.
// A preempted sequence gives all blocks back and goes to the front of the waiting ones with the tokens it has; since
// sampling depends on (seed, position) and the logits alone, it continues as if nothing had happened. The oldest
// sequence is never preempted and can always finish (ValidateRequest), hence so does every other in its turn.
//
// A step may be planned while the one before is in flight (StepRunner::launches_async). It takes the tokens that are being
// drawn as drawn, by StepPlan::token_sources, and assumes that none of them ends its sequence: a row too many of one
// that ends is computed in vain and dropped. Blocks of an ended sequence are free at once, since steps take effect in
// order. What cannot be assumed waits for the commit: preemption, and the rows of a sequence with penalties, which count
// known tokens, with a TokenConstraint, whose masks follow from them, or with drafts. The others go on without it, unless those
// who wait are as many as they.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/engine_options.h"
#include "engine/request.h"
#include "engine/scheduler/block_pool.h"
#include "engine/scheduler/kv_forecast.h"
#include "engine/scheduler/output_lengths.h"
#include "engine/scheduler/prefix_cache.h"
#include "engine/scheduler/queue_time.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_plan.h"
#include "engine/scheduler/token_drafter.h"

namespace sluice {

// Not thread-safe: owned by the engine thread. Times are ns on the engine's Clock. Functions that end sequences append
// their last outputs to `outputs`, one for each sequence ever added.
class Scheduler {
 public:
  using Outputs = std::vector<SequenceOutput>;
  using SequencePredicate = absl::FunctionRef<bool(const Sequence&)>;

  // `drafter`: null for none; outlives the scheduler. REQUIRES: ValidateEngineOptions(options).ok()
  explicit Scheduler(const EngineOptions& options, TokenDrafter* drafter = nullptr);

  // `first_sibling`: the first id of what was submitted together. REQUIRES: `id` is above all ids added before;
  // ValidateRequest(request, options).ok()
  void Add(SequenceId id, SequenceId first_sibling, Request request, int64_t arrival_ns);

  // Ends a sequence, whose rows in steps in flight count no more; an unknown id is ignored. REQUIRES: reason != kNone
  void Finish(SequenceId id, FinishReason reason, int64_t now_ns, Outputs* outputs);

  // Ends the sequences that `matches` is true of, with `error` as the reason behind kError. REQUIRES: reason != kNone
  void FinishIf(SequencePredicate matches, FinishReason reason, const absl::Status& error, int64_t now_ns,
                Outputs* outputs);

  // Ends sequences whose deadline has come as kDeadline.
  void FinishExpired(int64_t now_ns, Outputs* outputs);

  // The next step, at least one row, which is in flight from now until it is committed; the plan is valid as long. Null
  // if there is nothing that can be planned before the step in flight is committed; never null if there is none.
  // REQUIRES: has_sequences(), at most one step in flight
  const StepPlan* Plan(int64_t now_ns);

  // Takes the result of the oldest step in flight in: delivers tokens, ends the sequences that stop. REQUIRES: a step
  // in flight, `result` parallel to its plan
  StepStats Commit(StepResult result, int64_t now_ns, Outputs* outputs);

  // Forgets the steps in flight, whose results will never come. All that may follow is to end every sequence.
  void AbandonSteps();

  // Whether `s`, or what was submitted together with it, has ever been admitted. Admission is in order of ids: if one
  // from the first sibling on has been admitted, so has a sibling, perhaps one that has ended since.
  bool any_sibling_ran(const Sequence& s) const { return newest_admitted_ >= s.first_sibling; }

  int32_t num_steps_in_flight() const { return num_in_flight_; }
  bool has_sequences() const { return !running_.empty() || !waiting_.empty(); }
  int32_t num_running() const { return int32_t(running_.size()); }
  int32_t num_waiting() const { return int32_t(waiting_.size()); }
  int64_t num_waiting_tokens() const { return num_waiting_tokens_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixCache& prefix_cache() const { return prefix_cache_; }
  QueueDrain queue_drain() const { return queue_pace_.drain(); }

  // Since the start.
  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }  // each sequence's once, when they are computed
  int64_t num_generation_tokens() const { return num_generation_tokens_; }

  // For tests and debug builds: dies if blocks, slots, lists and counts disagree.
  void CheckInvariants() const;
  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
  const std::deque<std::unique_ptr<Sequence>>& waiting() const { return waiting_; }

 private:
  struct Step {
    StepPlan plan;
    std::vector<Sequence*> sequences;  // in the plan's order
    StepStats stats;
  };
  Step& oldest_step() { return steps_[first_step_]; }
  Step& newest_step() { return steps_[(first_step_ + num_in_flight_ - 1) % steps_.size()]; }

  // Whether `s` lacks one token to compute, and more may follow.
  static bool Decodes(const Sequence& s) { return s.num_remaining_tokens() <= 1 && !s.draws_its_last(); }
  // Whether `s` is to have what the step in flight draws for it before it has another row: penalties count it, masks follow
  // from it, nobody knows how many tokens it will be, or drafts shall follow it.
  bool AwaitsStep(const Sequence& s) const;
  // Whether a step can be planned while another is in flight: there are blocks for every row, and not so many sequences
  // await the one in flight that a step for the others alone would cost more than it gains.
  bool CanDecodeAhead() const;
  // Returns the rows it has handed out.
  int32_t ScheduleDecodes(int64_t now_ns);
  void AdmitWaiting(int64_t now_ns);
  // What the others hold, and so what would be said of the first that waits, changes by blocks.
  int32_t RefusalStands() const { return std::max(1, options_.block_size / 2); }
  void Admit(const PrefixHit& hit, Sequence* s);
  // Makes room in the tables of `s` for what is to be computed of its tokens. REQUIRES: there are as many blocks
  void Reserve(Sequence* s);
  // The blocks that Admit needs.
  int64_t BlocksToAdmit(const Sequence& s, const PrefixHit& hit) const;
  void SchedulePrompts(int64_t now_ns, int32_t budget);
  // Divides `budget` rows among prompts_, from which it takes those that need not compute what others do.
  void DivideRows(int32_t budget);
  // Puts the rows of `s` (num_scheduled_tokens) into the step.
  void Schedule(Sequence* s, int64_t now_ns);

  // True if the tables of `s` have room for all its tokens now; false: the pool has too few blocks.
  [[nodiscard]] bool Grow(Sequence* s);
  // Fills the rows and blocks that nobody else has asked for with drafts.
  void ScheduleDrafts();
  // Gives `s` drafts, at most `max_tokens`, if there are blocks for them, and returns how many.
  int32_t AddDrafts(Sequence* s, int32_t max_tokens);
  // Books what the step just planned for `s` computes.
  void Advance(Sequence* s);
  // Gives all blocks of `s` back: of all its tables the ends first, so that those are evicted first.
  static void ReleaseBlocks(Sequence* s);
  // Drops the blocks of `s` that none of its next rows sees.
  void DropUnreachable(Sequence* s);
  void PreemptNewest();
  // Takes what was drawn behind the last known token of `s` and behind each of its drafts: tokens as far as the drafts were
  // right. REQUIRES: 1 + num_drafts samples, or none
  void CommitSamples(Sequence* s, absl::Span<SampledToken> samples, int64_t now_ns, SequenceOutput* output);
  void CommitSample(Sequence* s, SampledToken sample, int64_t now_ns, SequenceOutput* output);
  // Ends `s`, for which nothing could be drawn: the logits or its TokenConstraint do not let anything be.
  void EndWithoutToken(Sequence* s, int64_t now_ns, SequenceOutput* output);
  void CheckTables(const Sequence& s) const;
  void CheckHolders() const;
  // Appends the last output of `s` and releases what it holds; the caller removes it from its list.
  void End(Sequence* s, FinishReason reason, const absl::Status& error, int64_t now_ns, Outputs* outputs);
  void TakeOffTheBooks(Sequence* s, FinishReason reason);
  // Takes the ended ones out of `list`; those that steps in flight point to live on in ended_.
  template <typename List>
  void RemoveEnded(List* list);

  const EngineOptions options_;
  TokenDrafter* const drafter_;
  BlockPool pool_;  // outlives the sequences below
  PrefixCache prefix_cache_;

  // Both in order of arrival, and everyone running arrived before everyone waiting.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  int64_t num_waiting_tokens_ = 0;
  SequenceId newest_admitted_ = 0;  // since the start
  std::vector<int32_t> free_slots_;
  int64_t next_deadline_ns_;  // no deadline comes before
  OutputLengths output_lengths_;
  KvForecast forecast_;
  int32_t refusal_stands_ = 0;  // admission rounds for which the first that waits need not be looked at again
  QueuePace queue_pace_;
  int32_t num_gave_up_ = 0;  // ended while they waited, since queue_pace_ was told
  std::vector<Sequence*> prompts_;  // of the step being planned
  std::vector<int32_t> drafts_;     // of the sequence being planned or committed

  std::array<Step, 2> steps_;  // a ring: its memory serves again
  size_t first_step_ = 0;      // the oldest in flight
  int32_t num_in_flight_ = 0;
  std::vector<std::unique_ptr<Sequence>> ended_;  // until the last step with rows of theirs has been committed

  int64_t num_preemptions_ = 0;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_generation_tokens_ = 0;
};

}  // namespace sluice
