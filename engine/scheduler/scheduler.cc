#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/error_reason.h"
#include "engine/scheduler/kv_blocks.h"
#include "engine/scheduler/plan_builder.h"
#include "engine/scheduler/prompt_shares.h"

namespace sluice {
namespace {

// Two prompts of a step that no longer compute the same leave rows for others, which may compute the same again, and so on.
constexpr int kDivisions = 4;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

SequenceOutput MakeOutput(const Sequence& s) {
  SequenceOutput output;
  output.id = s.id;
  output.num_prompt_tokens = s.num_prompt_tokens;
  output.num_cached_tokens = s.num_cached_tokens;
  output.num_preemptions = s.num_preemptions;
  output.timings = s.timings;
  return output;
}

// The context moves out with the last output: if it was the last reference, it dies where the output is consumed.
void MakeLast(FinishReason reason, int64_t now_ns, Sequence* s, SequenceOutput* output) {
  SLUICE_CHECK(reason != FinishReason::kNone);
  s->timings.finish_ns = now_ns;
  output->timings = s->timings;
  output->finish_reason = reason;
  output->context = std::move(s->request.context);
}

// Whether drawing a token looks at those drawn before.
bool NeedsOutputTokens(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.frequency_penalty != 0 || sampling.presence_penalty != 0;
}

template <typename List>
auto FindSequence(List& list, SequenceId id) {
  const auto it = std::lower_bound(list.begin(), list.end(), id,
                                   [](const std::unique_ptr<Sequence>& s, SequenceId id) { return s->id < id; });
  return it != list.end() && (*it)->id == id ? it : list.end();
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, TokenDrafter* drafter)
    : options_(options),
      drafter_(drafter),
      pool_(options.num_blocks, [this](int32_t block) { prefix_cache_.Forget(block); }),
      prefix_cache_(options_, &pool_),
      next_deadline_ns_(kNever),
      output_lengths_(options.max_model_len),
      forecast_(options_),
      queue_pace_(options.max_num_seqs) {
  for (int32_t slot = options_.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Scheduler::Add(SequenceId id, SequenceId first_sibling, Request request, int64_t arrival_ns) {
  SLUICE_CHECK(waiting_.empty() || waiting_.back()->id < id);
  SLUICE_CHECK(running_.empty() || running_.back()->id < id);
  next_deadline_ns_ = std::min(next_deadline_ns_, request.deadline_ns.value_or(kNever));
  waiting_.push_back(std::make_unique<Sequence>(id, std::move(request), options_, &pool_, arrival_ns));
  waiting_.back()->first_sibling = first_sibling;
  waiting_.back()->salt = prefix_cache_.SaltOf(waiting_.back()->request.cache_salt);
  num_waiting_tokens_ += waiting_.back()->num_tokens();
}

template <typename List>
void Scheduler::RemoveEnded(List* list) {
  const auto first = std::stable_partition(list->begin(), list->end(), [](const auto& s) { return !s->ended; });
  for (auto s = first; s != list->end(); ++s) {
    if ((*s)->num_steps_in_flight > 0) ended_.push_back(std::move(*s));
  }
  list->erase(first, list->end());
}

void Scheduler::Finish(SequenceId id, FinishReason reason, int64_t now_ns, Outputs* outputs) {
  if (const auto it = FindSequence(running_, id); it != running_.end()) {
    End(it->get(), reason, absl::OkStatus(), now_ns, outputs);
    RemoveEnded(&running_);
  } else if (const auto it = FindSequence(waiting_, id); it != waiting_.end()) {
    End(it->get(), reason, absl::OkStatus(), now_ns, outputs);
    RemoveEnded(&waiting_);
  }
}

void Scheduler::FinishIf(SequencePredicate matches, FinishReason reason, const absl::Status& error, int64_t now_ns,
                         Outputs* outputs) {
  const auto end_matching = [&](auto* list) {
    for (const std::unique_ptr<Sequence>& s : *list) {
      if (matches(*s)) End(s.get(), reason, error, now_ns, outputs);
    }
    RemoveEnded(list);
  };
  end_matching(&running_);
  end_matching(&waiting_);
}

void Scheduler::FinishExpired(int64_t now_ns, Outputs* outputs) {
  if (now_ns < next_deadline_ns_) return;
  next_deadline_ns_ = kNever;
  const auto expired = [&](const Sequence& s) {
    const int64_t deadline_ns = s.request.deadline_ns.value_or(kNever);
    if (deadline_ns <= now_ns) return true;
    next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
    return false;
  };
  FinishIf(expired, FinishReason::kDeadline, absl::OkStatus(), now_ns, outputs);
}

void Scheduler::End(Sequence* s, FinishReason reason, const absl::Status& error, int64_t now_ns, Outputs* outputs) {
  SequenceOutput output = MakeOutput(*s);
  MakeLast(reason, now_ns, s, &output);
  output.error = error;
  outputs->push_back(std::move(output));
  TakeOffTheBooks(s, reason);
}

void Scheduler::TakeOffTheBooks(Sequence* s, FinishReason reason) {
  s->ended = true;
  refusal_stands_ = 0;
  const auto num_output_tokens = int32_t(s->output().size());
  if (s->can_stop_early() && num_output_tokens > 0 && reason != FinishReason::kError) {
    output_lengths_.Record(num_output_tokens, /*stopped=*/reason != FinishReason::kLength);
  }
  if (s->running()) {
    free_slots_.push_back(std::exchange(s->slot, -1));
  } else {
    num_waiting_tokens_ -= s->num_tokens();
    ++num_gave_up_;
  }
  ReleaseBlocks(s);
}

void Scheduler::ReleaseBlocks(Sequence* s) {
  int32_t num_entries = 0;
  for (const BlockTable& table : s->block_tables) num_entries = std::max(num_entries, table.size());
  while (num_entries-- > 0) {
    for (BlockTable& table : s->block_tables) {
      if (num_entries >= table.num_dropped()) table.Truncate(num_entries);
    }
  }
  for (BlockTable& table : s->block_tables) table.Clear();
}

const StepPlan* Scheduler::Plan(int64_t now_ns) {
  SLUICE_CHECK(has_sequences() && num_in_flight_ <= 1);
  if (num_in_flight_ > 0 && !CanDecodeAhead()) return nullptr;
  ++num_in_flight_;
  Step& step = newest_step();
  step.sequences.clear();
  step.stats = StepStats();
  const int64_t num_preemptions = num_preemptions_;
  const int32_t num_decodes = ScheduleDecodes(now_ns);
  // What a preempted sequence has just given back is for those who grow, not for letting it in again.
  if (num_preemptions_ == num_preemptions) AdmitWaiting(now_ns);
  int32_t budget = options_.max_num_batched_tokens - num_decodes;
  if (num_decodes > 0) budget = std::min(budget, PromptRowsBesideDecodes(options_));
  SchedulePrompts(now_ns, budget);
  ScheduleDrafts();
  if (step.sequences.empty()) {
    SLUICE_CHECK(--num_in_flight_ == 1);
    return nullptr;
  }
  step.stats.num_sequences = int32_t(step.sequences.size());
  BuildStepPlan(step.sequences, options_.block_size, &step.plan);
  for (size_t i = 0; i < step.plan.samples.size(); ++i) {
    Sequence* const s = step.sequences[size_t(step.plan.samples[i].sequence_index)];
    if (i == 0 || step.plan.samples[i - 1].sequence_index != step.plan.samples[i].sequence_index) ++s->num_drawing;
    s->sample_index = int32_t(i);
  }
  for (Sequence* s : step.sequences) Advance(s);
  return &step.plan;
}

void Scheduler::Advance(Sequence* s) {
  // A draft's row may prove void.
  s->num_computed_tokens += std::exchange(s->num_scheduled_tokens, 0) - s->num_drafts;
  ++s->num_steps_in_flight;
  prefix_cache_.Publish(s);
  DropUnreachable(s);
}

bool Scheduler::AwaitsStep(const Sequence& s) const {
  if (s.num_drawing == 0) return false;
  return s.num_drafts > 0 || NeedsOutputTokens(s.request.sampling) || s.output_mask.follows_output() ||
         (drafter_ != nullptr && drafter_->Wants(s));
}

bool Scheduler::CanDecodeAhead() const {
  int64_t num_blocks = 0;
  int32_t num_ready = 0, num_awaiting = 0;
  for (const std::unique_ptr<Sequence>& s : running_) {
    if (!Decodes(*s)) continue;
    const bool awaits = AwaitsStep(*s);
    ++(awaits ? num_awaiting : num_ready);
    if (awaits) continue;
    const int32_t num_entries = BlocksFor(s->num_tokens(), options_.block_size);
    for (const BlockTable& table : s->block_tables) num_blocks += std::max(0, num_entries - table.size());
  }
  return num_blocks <= pool_.num_available() && (num_awaiting == 0 || num_awaiting < num_ready);
}

int32_t Scheduler::ScheduleDecodes(int64_t now_ns) {
  int32_t num_rows = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence* const s = running_[i].get();
    if (!Decodes(*s) || AwaitsStep(*s)) continue;
    while (!Grow(s)) {
      PreemptNewest();
      if (i == running_.size()) return num_rows;  // it was `s` itself
    }
    s->num_scheduled_tokens = 1;
    Schedule(s, now_ns);
    ++num_rows;
  }
  return num_rows;
}

void Scheduler::ScheduleDrafts() {
  if (drafter_ == nullptr) return;
  StepStats& stats = newest_step().stats;
  for (Sequence* s : newest_step().sequences) {
    if (s->num_remaining_tokens() > 1 || s->num_drawing > 0) continue;
    const int32_t rows = options_.max_num_batched_tokens - stats.num_prefill_tokens - stats.num_decode_tokens;
    // A token is drawn behind the last draft too.
    const int32_t most = std::min(rows, s->request.sampling.max_tokens - s->num_output_tokens() - 1);
    if (most <= 0) continue;
    const int32_t num_drafts = AddDrafts(s, most);
    s->num_scheduled_tokens += num_drafts;
    stats.num_decode_tokens += num_drafts;
  }
}

int32_t Scheduler::AddDrafts(Sequence* s, int32_t max_tokens) {
  drafts_.clear();
  drafter_->Draft(*s, max_tokens, &drafts_);
  SLUICE_CHECK(int32_t(drafts_.size()) <= max_tokens);
  // What cannot come is wrong for sure, and so is all behind it.
  if (s->output_mask.follows_output()) drafts_.resize(size_t(s->output_mask.CountPossible(drafts_)));
  int64_t num_blocks = 0;
  const auto num_entries = BlocksFor(s->num_tokens() + int64_t(drafts_.size()), options_.block_size);
  for (const BlockTable& table : s->block_tables) num_blocks += std::max(0, num_entries - table.size());
  // Nobody is preempted for a draft.
  if (drafts_.empty() || num_blocks > pool_.num_available()) return 0;
  for (BlockTable& table : s->block_tables) SLUICE_CHECK(table.GrowTo(num_entries));
  s->tokens.insert(s->tokens.end(), drafts_.begin(), drafts_.end());
  s->num_drafts = int32_t(drafts_.size());
  return s->num_drafts;
}

void Scheduler::AdmitWaiting(int64_t now_ns) {
  int32_t num_new = 0;
  bool begun = false;
  if (refusal_stands_ > 0) --refusal_stands_;
  while (refusal_stands_ == 0 && num_running() < options_.max_num_seqs && !waiting_.empty()) {
    Sequence* const s = waiting_.front().get();
    const PrefixHit hit = prefix_cache_.Find(s);
    if (BlocksToAdmit(*s, hit) > pool_.num_available()) {
      // An end makes room, and is looked at at once, or little by little the growth of a prompt over a window. Looking for a
      // long prefix costs more than finding too few blocks.
      if (prefix_cache_.enabled()) refusal_stands_ = RefusalStands();
      break;
    }
    if (!begun) forecast_.Begin(running_, output_lengths_);
    begun = true;
    if (options_.admit_by_forecast && !running_.empty() && !forecast_.Fits(*s, hit)) {
      refusal_stands_ = RefusalStands();
      break;
    }
    forecast_.Add(*s, hit);
    num_new += s->num_preemptions == 0;
    Admit(hit, s);
  }
  queue_pace_.Observe(now_ns, num_new, std::exchange(num_gave_up_, 0), num_waiting());
}

int64_t Scheduler::BlocksToAdmit(const Sequence& s, const PrefixHit& hit) const {
  int64_t num_blocks = -int64_t{hit.num_live};
  for (const AttentionMask& mask : options_.kv_groups) {
    const int32_t dropped = UnreachableBlocks(mask, hit.num_blocks * options_.block_size, options_.block_size);
    num_blocks += EntriesToCompute(mask, s.num_tokens(), dropped, options_) - dropped;
  }
  return num_blocks;
}

void Scheduler::Reserve(Sequence* s) {
  for (size_t group = 0; group < s->block_tables.size(); ++group) {
    BlockTable& table = s->block_tables[group];
    const AttentionMask& mask = options_.kv_groups[group];
    SLUICE_CHECK(table.GrowTo(EntriesToCompute(mask, s->num_tokens(), table.num_dropped(), options_)));
  }
}

void Scheduler::Admit(const PrefixHit& hit, Sequence* s) {
  prefix_cache_.Take(hit, s);
  Reserve(s);
  s->slot = free_slots_.back();
  free_slots_.pop_back();
  newest_admitted_ = std::max(newest_admitted_, s->id);
  num_waiting_tokens_ -= s->num_tokens();
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
}

void Scheduler::SchedulePrompts(int64_t now_ns, int32_t budget) {
  prompts_.clear();
  for (const std::unique_ptr<Sequence>& s : running_) {
    if (s->num_scheduled_tokens == 0 && !s->draws_its_last() && !AwaitsStep(*s)) prompts_.push_back(s.get());
  }
  DivideRows(budget);
  for (Sequence* s : prompts_) {
    if (s->num_scheduled_tokens > 0) Schedule(s, now_ns);
  }
}

void Scheduler::DivideRows(int32_t budget) {
  if (budget == 0) return;
  for (Sequence* s : prompts_) {
    if (prefix_cache_.CatchUp(s)) Reserve(s);
  }
  DividePromptRows(absl::MakeSpan(prompts_), budget);
  for (int i = 1; i < kDivisions && prefix_cache_.TakeOutFollowers(&prompts_); ++i) {
    for (Sequence* s : prompts_) s->num_scheduled_tokens = 0;
    DividePromptRows(absl::MakeSpan(prompts_), budget);
  }
}

void Scheduler::Schedule(Sequence* s, int64_t now_ns) {
  if (!s->ever_scheduled) s->timings.first_scheduled_ns = now_ns;
  s->ever_scheduled = true;
  Step& step = newest_step();
  step.sequences.push_back(s);
  const bool decode = s->num_remaining_tokens() == 1 && s->num_output_tokens() > 0;
  (decode ? step.stats.num_decode_tokens : step.stats.num_prefill_tokens) += s->num_scheduled_tokens;
}

bool Scheduler::Grow(Sequence* s) {
  const int32_t num_entries = BlocksFor(s->num_tokens(), options_.block_size);
  for (BlockTable& table : s->block_tables) {
    if (!table.GrowTo(num_entries)) return false;
  }
  return true;
}

void Scheduler::DropUnreachable(Sequence* s) {
  const int32_t num_wanted = BlocksFor(s->num_tokens(), options_.block_size);
  for (size_t group = 0; group < s->block_tables.size(); ++group) {
    const AttentionMask& mask = options_.kv_groups[group];
    s->block_tables[group].DropFront(UnreachableBlocks(mask, s->num_computed_tokens, options_.block_size), num_wanted);
  }
}

void Scheduler::PreemptNewest() {
  std::unique_ptr<Sequence> s = std::move(running_.back());
  running_.pop_back();
  SLUICE_CHECK(s->num_scheduled_tokens == 0 && s->num_steps_in_flight == 0);
  ReleaseBlocks(s.get());
  s->most_computed_tokens = std::max(s->most_computed_tokens, std::exchange(s->num_computed_tokens, 0));
  s->num_published_blocks = 0;
  free_slots_.push_back(std::exchange(s->slot, -1));
  ++s->num_preemptions;
  ++num_preemptions_;
  num_waiting_tokens_ += s->num_tokens();
  waiting_.push_front(std::move(s));
}

StepStats Scheduler::Commit(StepResult result, int64_t now_ns, Outputs* outputs) {
  SLUICE_CHECK(num_in_flight_ > 0);
  Step& step = oldest_step();
  const StepPlan& plan = step.plan;
  SLUICE_CHECK(result.samples.size() == plan.samples.size());
  SLUICE_CHECK(result.prompt_logprobs.size() == plan.prompt_logprobs.size());
  outputs->reserve(outputs->size() + step.sequences.size());
  size_t next_prompt_logprob = 0;
  size_t next_sample = 0;
  bool any_ended = false;
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    Sequence* const s = step.sequences[i];
    --s->num_steps_in_flight;
    SequenceOutput output = MakeOutput(*s);
    while (next_prompt_logprob < plan.prompt_logprobs.size() &&
           plan.prompt_logprobs[next_prompt_logprob].sequence_index == int32_t(i)) {
      output.prompt_logprobs.push_back(std::move(result.prompt_logprobs[next_prompt_logprob++]));
    }
    const size_t first_sample = next_sample;
    while (next_sample < plan.samples.size() && plan.samples[next_sample].sequence_index == int32_t(i)) ++next_sample;
    if (s->ended) continue;
    if (!s->prompt_counted && plan.context_lens[i] >= s->num_prompt_tokens) {
      s->prompt_counted = true;
      num_prompt_tokens_ += s->num_prompt_tokens;
    }
    s->num_prompt_logprobs += int32_t(output.prompt_logprobs.size());
    const auto samples = absl::MakeSpan(result.samples).subspan(first_sample, next_sample - first_sample);
    if (!samples.empty()) CommitSamples(s, samples, now_ns, &output);
    if (output.finish_reason != FinishReason::kNone) {
      any_ended = true;
      TakeOffTheBooks(s, output.finish_reason);
    } else {
      if (output.tokens.empty() && output.prompt_logprobs.empty()) continue;  // nothing to say yet
      output.context = s->request.context;
    }
    outputs->push_back(std::move(output));
  }
  if (any_ended) RemoveEnded(&running_);
  first_step_ = (first_step_ + 1) % steps_.size();
  --num_in_flight_;
  std::erase_if(ended_, [](const auto& s) { return s->num_steps_in_flight == 0; });
  return step.stats;
}

void Scheduler::CommitSamples(Sequence* s, absl::Span<SampledToken> samples, int64_t now_ns, SequenceOutput* output) {
  SLUICE_CHECK(samples.size() == size_t(s->num_drafts) + 1);
  --s->num_drawing;
  // The drafts leave the tokens, and those that were right come back as such.
  drafts_.assign(s->tokens.end() - s->num_drafts, s->tokens.end());
  s->tokens.resize(size_t(s->num_known_tokens()));
  s->num_drafts = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool right = i < drafts_.size() && samples[i].finite && samples[i].token == drafts_[i];
    CommitSample(s, std::move(samples[i]), now_ns, output);
    if (!right || output->finish_reason != FinishReason::kNone) break;
    ++s->num_computed_tokens;
  }
  prefix_cache_.Publish(s);
  if (drafts_.empty()) return;
  const int32_t num_entries = BlocksFor(s->num_tokens(), options_.block_size);
  for (BlockTable& table : s->block_tables) table.Truncate(num_entries);
  DropUnreachable(s);
}

void Scheduler::CommitSample(Sequence* s, SampledToken sample, int64_t now_ns, SequenceOutput* output) {
  if (!sample.finite) return EndWithoutToken(s, now_ns, output);
  SLUICE_CHECK(sample.token >= 0 && sample.token < options_.vocab_size);
  s->tokens.push_back(sample.token);
  ++num_generation_tokens_;
  if (s->output().size() == 1) output->timings.first_token_ns = s->timings.first_token_ns = now_ns;
  output->tokens.push_back(sample.token);
  if (s->request.sampling.logprobs.has_value()) output->logprobs.push_back(std::move(sample.logprobs));
  FinishReason reason = s->CheckStop(options_.eos_token_ids);
  const bool is_end = reason == FinishReason::kStop || reason == FinishReason::kStopSequence;
  if (is_end) output->stop_token = sample.token;
  if (!is_end && s->output_mask.follows_output()) {
    if (!s->output_mask.Advance(sample.token)) {
      output->error = WithReason(
          absl::InternalError(absl::StrCat("the constraint on the output allowed token ", sample.token, " and then refused it")),
          kReasonConstraintFailed);
      reason = FinishReason::kError;
    } else if (s->output_mask.is_finished()) {
      reason = FinishReason::kStop;
    }
  }
  if (reason != FinishReason::kNone) MakeLast(reason, now_ns, s, output);
}

void Scheduler::EndWithoutToken(Sequence* s, int64_t now_ns, SequenceOutput* output) {
  OutputMask& mask = s->output_mask;
  const bool below_min = int32_t(s->output().size()) < s->request.sampling.min_tokens;
  const auto masked = below_min ? absl::MakeConstSpan(s->masked_below_min_tokens) : absl::Span<const int32_t>();
  if (!mask.follows_output() || !mask.AllowsNothing(masked)) {
    output->error = WithReason(
        absl::InternalError("the model's logits hold a NaN, or no finite value of a token that may be drawn"),
        kReasonNonfiniteLogits);
  } else if (mask.may_stop()) {
    // min_tokens or ignore_eos keep back the end token, and there is nothing else.
    return MakeLast(FinishReason::kStop, now_ns, s, output);
  } else {
    output->error = WithReason(
        absl::FailedPreconditionError(absl::StrCat("the constraint on the output allows no token of the vocabulary behind ",
                                                   s->output().size(), " of them, and the output is not complete")),
        kReasonNoTokenAllowed);
  }
  MakeLast(FinishReason::kError, now_ns, s, output);
}

void Scheduler::AbandonSteps() {
  for (; num_in_flight_ > 0; --num_in_flight_) {
    for (Sequence* s : oldest_step().sequences) --s->num_steps_in_flight;
    first_step_ = (first_step_ + 1) % steps_.size();
  }
  ended_.clear();
}

void Scheduler::CheckTables(const Sequence& s) const {
  for (size_t group = 0; group < s.block_tables.size(); ++group) {
    const AttentionMask& mask = options_.kv_groups[group];
    const BlockTable& table = s.block_tables[group];
    // All that is computed and can still be seen lies in blocks, and nothing else.
    SLUICE_CHECK(table.size() >= BlocksFor(s.num_computed_tokens, options_.block_size));
    SLUICE_CHECK(table.num_dropped() == UnreachableBlocks(mask, s.num_computed_tokens, options_.block_size));
    for (int32_t i = 0; i < table.size(); ++i) SLUICE_CHECK((table.blocks()[i] < 0) == (i < table.num_dropped()));
    // Beyond a prompt's blocks nothing is held in advance, and what was counted on at the admission is enough.
    const int32_t num_tokens = s.num_tokens() + s.num_drafts;
    SLUICE_CHECK(table.size() <= BlocksFor(num_tokens, options_.block_size));
    SLUICE_CHECK(table.num_held() <= PeakBlocks(mask, num_tokens, options_));
    // Rows to come are written where nobody else reads, now or later.
    const int32_t first_to_write = std::max(s.num_computed_tokens / options_.block_size, table.num_dropped());
    for (int32_t i = first_to_write; i < table.size(); ++i) SLUICE_CHECK(pool_.writable(table.blocks()[i]));
    if (!prefix_cache_.enabled()) continue;
    // What is full, and known for what it is, can be found.
    const int32_t num_full = std::min(s.num_computed_tokens, s.num_known_tokens()) / options_.block_size;
    for (int32_t i = table.num_dropped(); i < num_full; ++i) SLUICE_CHECK(pool_.keeps_contents(table.blocks()[i]));
  }
}

// Every reference is a table's, and those who share a block mean the same by it.
void Scheduler::CheckHolders() const {
  struct Place {
    int32_t num_refs = 0, entry = 0;
    size_t group = 0;
    KvSalt salt = 0;
  };
  std::vector<Place> places(size_t(options_.num_blocks));
  int32_t num_promised = 0;
  for (const std::unique_ptr<Sequence>& s : running_) {
    for (size_t group = 0; group < s->block_tables.size(); ++group) {
      const BlockTable& table = s->block_tables[group];
      for (int32_t entry = table.num_dropped(); entry < table.size(); ++entry) {
        Place& place = places[size_t(table.blocks()[entry])];
        if (place.num_refs++ == 0) {
          place.entry = entry, place.group = group, place.salt = s->salt;
        } else {
          SLUICE_CHECK(place.entry == entry && place.group == group && place.salt == s->salt);
          num_promised += table.rolls();
        }
      }
    }
  }
  SLUICE_CHECK(num_promised == pool_.num_promised());
  for (int32_t block = 0; block < options_.num_blocks; ++block) {
    SLUICE_CHECK(places[size_t(block)].num_refs == pool_.ref_count(block));
  }
}

void Scheduler::CheckInvariants() const {
  pool_.CheckInvariants();
  prefix_cache_.CheckInvariants();
  CheckHolders();
  SLUICE_CHECK(running_.size() + free_slots_.size() == size_t(options_.max_num_seqs));
  std::vector<bool> slot_used(options_.max_num_seqs, false);
  for (int32_t slot : free_slots_) slot_used[slot] = true;
  SequenceId last_id = 0;
  for (const std::unique_ptr<Sequence>& s : running_) {
    SLUICE_CHECK(s->id > last_id);
    last_id = s->id;
    SLUICE_CHECK(s->running() && !slot_used[s->slot]);
    slot_used[s->slot] = true;
    SLUICE_CHECK(s->num_scheduled_tokens == 0 && s->num_remaining_tokens() >= 1);
    SLUICE_CHECK(s->num_drawing >= 0 && s->num_drawing <= s->num_steps_in_flight);
    SLUICE_CHECK(s->num_steps_in_flight <= num_in_flight_);
    CheckTables(*s);
  }
  int64_t num_waiting_tokens = 0;
  for (const std::unique_ptr<Sequence>& s : waiting_) {
    SLUICE_CHECK(s->id > last_id);
    last_id = s->id;
    SLUICE_CHECK(!s->running() && s->num_computed_tokens == 0 && s->num_steps_in_flight == 0);
    for (const BlockTable& table : s->block_tables) SLUICE_CHECK(table.size() == 0);
    num_waiting_tokens += s->num_tokens();
  }
  SLUICE_CHECK(num_waiting_tokens == num_waiting_tokens_);
}

}  // namespace sluice
