#include "engine/runtime/runner.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/model/kv_groups.h"

namespace sluice {
namespace {

template <typename T>
std::span<const T> View(const std::vector<T>& values) {
  return {values.data(), values.size()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Runner::Reserve(Ops* ops, ModelSpec spec, ModelWeights weights,
                                                         const RunnerOptions& options) {
  SLUICE_CHECK(options.num_blocks > 0 && options.max_num_seqs > 0 && options.max_num_batched_tokens > 0);
  DecoderOptions decoder;
  decoder.limits.max_tokens = options.max_num_batched_tokens;
  decoder.limits.max_seqs = decoder.limits.max_logits = options.max_num_seqs;
  decoder.limits.max_blocks_per_seq = (options.max_model_len + options.block_size - 1) / options.block_size;
  // Where layers see a window only, sequences may have more in their contexts than in the cache: rare, and allowed.
  decoder.limits.max_context_tokens = std::min(int64_t{options.max_num_seqs} * options.max_model_len,
                                               int64_t{options.num_blocks} * options.block_size);
  decoder.limits.max_logprobs = std::min(options.max_logprobs, spec.vocab_size);
  decoder.limits.max_adjusted = options.max_adjusted;
  decoder.max_position = options.max_model_len;
  decoder.kv_block_size = options.block_size;
  decoder.kv_dtype = options.kv_dtype;
  decoder.limits.expands_latents = options.numerics.mla_expand_from != INT32_MAX;
  return Decoder::Create(std::move(spec), std::move(weights), ops, decoder);
}

absl::StatusOr<std::unique_ptr<Runner>> Runner::Create(std::unique_ptr<Ops> ops, std::unique_ptr<Decoder> decoder,
                                                       const RunnerOptions& options) {
  std::unique_ptr<Runner> runner(new Runner(std::move(ops), options));
  runner->decoder_ = std::move(decoder);
  const ModelSpec& spec = runner->spec();
  runner->kv_groups_ = MakeKvGroups(spec).masks;
  runner->numerics_ = options.numerics;
  runner->numerics_.rope = RopeClassesOf(spec.rope_tables);
  SLUICE_CHECK(size_t(options.num_blocks) >= runner->kv_groups_.size());
  const KvCacheShape shape = MakeKvCacheShape(spec, options.num_blocks, options.block_size, options.kv_dtype);
  SLUICE_ASSIGN_OR_RETURN(runner->kv_, runner->ops_->NewKvCache(shape));
  SLUICE_RETURN_IF_ERROR(runner->decoder_->WarmUp(runner->kv_.get()));
  SLUICE_RETURN_IF_ERROR(runner->WarmUp());
  return runner;
}

absl::StatusOr<std::unique_ptr<Runner>> Runner::Create(std::unique_ptr<Ops> ops, ModelSpec spec, ModelWeights weights,
                                                       const RunnerOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder,
                          Reserve(ops.get(), std::move(spec), std::move(weights), options));
  return Create(std::move(ops), std::move(decoder), options);
}

void Runner::SetEngineOptions(EngineOptions* options) const {
  options->max_model_len = options_.max_model_len;
  options->vocab_size = spec().vocab_size;
  options->block_size = options_.block_size;
  options->num_blocks = options_.num_blocks;
  options->kv_groups = kv_groups_;
  options->numerics = numerics_;
  options->max_num_seqs = options_.max_num_seqs;
  options->max_num_batched_tokens = options_.max_num_batched_tokens;
}

absl::Status Runner::WarmUp() {
  // One token of one sequence, into a block for each group, which nobody owns yet.
  const SamplingParams params;
  StepPlan plan;
  plan.token_ids = {0};
  plan.positions = {0};
  plan.row_starts = {0, 1};
  plan.context_lens = {1};
  plan.row_routes = {0};
  plan.rope_classes = {0};
  plan.seq_slots = {0};
  for (int32_t group = 0; group < int32_t(kv_groups_.size()); ++group) {
    plan.kv_groups.push_back({{group * options_.block_size}, {group}, 1});
  }
  plan.logits_rows = {0};
  plan.samples.emplace_back(params).position = 1;
  return Run(plan).status();
}

BatchView Runner::MakeBatch(const StepPlan& plan) {
  SLUICE_CHECK(plan.kv_groups.size() == kv_groups_.size());
  group_views_.clear();
  for (const KvGroupPlan& group : plan.kv_groups) {
    group_views_.push_back({View(group.slot_mapping), View(group.block_tables), group.block_table_stride});
  }
  BatchView batch;
  batch.token_ids = View(plan.token_ids);
  batch.positions = View(plan.positions);
  batch.row_starts = View(plan.row_starts);
  batch.context_lens = View(plan.context_lens);
  batch.row_routes = View(plan.row_routes);
  batch.rope_classes = View(plan.rope_classes);
  batch.adapters = View(plan.adapters);
  batch.kv_groups = View(group_views_);
  const auto drawn = [](int32_t source) { return source >= 0; };
  if (std::none_of(plan.token_sources.begin(), plan.token_sources.end(), drawn)) return batch;
  SLUICE_CHECK(!in_flight_.empty());
  const InFlightStep& previous = in_flight_.back();
  if (!previous.complete) {
    batch.token_sources = View(plan.token_sources);
    return batch;
  }
  // The device may have drawn them in several goes; here they are all known.
  token_ids_ = plan.token_ids;
  for (size_t row = 0; row < token_ids_.size(); ++row) {
    const int32_t source = plan.token_sources[row];
    if (source >= 0) token_ids_[row] = previous.result.samples[size_t(source)].token;
  }
  batch.token_ids = View(token_ids_);
  return batch;
}

absl::Status Runner::Launch(const StepPlan& plan) {
  SLUICE_CHECK(int32_t(in_flight_.size()) <= (launches_async() ? 1 : 0));
  const std::span<const int32_t> logits_rows = View(plan.logits_rows);
  const int32_t num_logits = int32_t(logits_rows.size());
  const int32_t at_once = options_.max_num_seqs;
  const bool ahead = launches_async() && num_logits <= at_once && plan.prompt_logprobs.empty();
  if (!ahead && !in_flight_.empty()) SLUICE_RETURN_IF_ERROR(Complete(&in_flight_.back()));
  BatchView batch = MakeBatch(plan);
  batch.logits_rows = logits_rows.first(size_t(std::min(num_logits, at_once)));
  decoder_->Forward(batch, kv_.get());

  InFlightStep& step = in_flight_.emplace_back();
  step.result.samples.resize(plan.samples.size());
  step.result.prompt_logprobs.resize(plan.prompt_logprobs.size());
  if (ahead) {
    MakeSampleRows(plan, 0, num_logits);
    return ops_->LaunchSample(View(sample_rows_));
  }
  for (int32_t first = 0; first < num_logits; first += at_once) {
    const int32_t count = std::min(at_once, num_logits - first);
    if (first > 0) {
      batch.logits_rows = logits_rows.subspan(size_t(first), size_t(count));
      decoder_->MoreLogits(batch);
    }
    SLUICE_RETURN_IF_ERROR(Sample(plan, first, count, &step.result));
    SLUICE_RETURN_IF_ERROR(ReportPrompt(plan, first, count, &step.result));
  }
  step.complete = true;
  return absl::OkStatus();
}

absl::Status Runner::Complete(InFlightStep* step) {
  if (step->complete) return absl::OkStatus();
  sample_results_.assign(step->result.samples.size(), SampleResult{});
  SLUICE_RETURN_IF_ERROR(ops_->TakeSamples(sample_results_));
  for (size_t i = 0; i < sample_results_.size(); ++i) {
    SampleResult& sample = sample_results_[i];
    step->result.samples[i] = {sample.token, sample.finite, std::move(sample.logprobs)};
  }
  step->complete = true;
  return absl::OkStatus();
}

absl::StatusOr<StepResult> Runner::Take() {
  SLUICE_CHECK(!in_flight_.empty());
  SLUICE_RETURN_IF_ERROR(Complete(&in_flight_.front()));
  StepResult result = std::move(in_flight_.front().result);
  in_flight_.pop_front();
  return result;
}

void Runner::MakeSampleRows(const StepPlan& plan, int32_t first, int32_t count) {
  sample_rows_.clear();
  sample_entries_.clear();
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const int32_t logits_row = plan.samples[i].logits_row;
    if (logits_row < first || logits_row >= first + count) continue;
    sample_rows_.push_back(plan.samples[i]);
    sample_rows_.back().logits_row -= first;
    sample_entries_.push_back(i);
  }
}

absl::Status Runner::Sample(const StepPlan& plan, int32_t first, int32_t count, StepResult* result) {
  MakeSampleRows(plan, first, count);
  if (sample_rows_.empty()) return absl::OkStatus();
  sample_results_.assign(sample_rows_.size(), SampleResult{});
  SLUICE_RETURN_IF_ERROR(ops_->Sample(View(sample_rows_), sample_results_));
  for (size_t i = 0; i < sample_rows_.size(); ++i) {
    SampleResult& sample = sample_results_[i];
    result->samples[sample_entries_[i]] = {sample.token, sample.finite, std::move(sample.logprobs)};
  }
  return absl::OkStatus();
}

absl::Status Runner::ReportPrompt(const StepPlan& plan, int32_t first, int32_t count, StepResult* result) {
  logprob_rows_.clear();
  logprob_entries_.clear();
  for (size_t i = 0; i < plan.prompt_logprobs.size(); ++i) {
    const PromptLogprobEntry& entry = plan.prompt_logprobs[i];
    if (entry.logits_index < first || entry.logits_index >= first + count) continue;
    logprob_rows_.push_back({entry.logits_index - first, entry.token, entry.num_top});
    logprob_entries_.push_back(i);
  }
  if (logprob_rows_.empty()) return absl::OkStatus();
  logprob_results_.assign(logprob_rows_.size(), TokenLogprobs{});
  SLUICE_RETURN_IF_ERROR(ops_->Logprobs(View(logprob_rows_), logprob_results_));
  for (size_t i = 0; i < logprob_rows_.size(); ++i) {
    result->prompt_logprobs[logprob_entries_[i]] = std::move(logprob_results_[i]);
  }
  return absl::OkStatus();
}

}  // namespace sluice
