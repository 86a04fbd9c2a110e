// The device side of a step: a plan's arrays go in, the forward pass runs, drawn tokens come out.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/numerics.h"
#include "engine/engine_options.h"
#include "engine/model/decoder.h"
#include "engine/ops/ops.h"
#include "engine/scheduler/step_runner.h"

namespace sluice {

struct RunnerOptions {
  int32_t block_size = 16;
  int32_t num_blocks = 0;
  KvDType kv_dtype = KvDType::kF16;
  int32_t max_model_len = 0;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  NumericsOptions numerics;  // but for what is the model's
  // Of a sequence in a step. More is right, but lets a device allocate.
  int32_t max_logprobs = 20;    // most likely tokens reported
  int32_t max_adjusted = 1100;  // logit biases, and tokens masked below min_tokens
};

// Owns the device, the weights, the decoder and the KV cache. One caller thread; nothing allocates on the device once
// Create has returned.
class Runner : public StepRunner {
 public:
  // The first half of Create: reserves everything a step can need but the KV cache. `weights` were made by `ops`. With
  // the options of Create, or such as allow more blocks and longer sequences. Errors of the device (memory above all)
  // are passed on.
  static absl::StatusOr<std::unique_ptr<Decoder>> Reserve(Ops* ops, ModelSpec spec, ModelWeights weights,
                                                          const RunnerOptions& options);
  // The second half: makes the KV cache and runs a step to warm up.
  static absl::StatusOr<std::unique_ptr<Runner>> Create(std::unique_ptr<Ops> ops, std::unique_ptr<Decoder> decoder,
                                                        const RunnerOptions& options);
  static absl::StatusOr<std::unique_ptr<Runner>> Create(std::unique_ptr<Ops> ops, ModelSpec spec, ModelWeights weights,
                                                        const RunnerOptions& options);

  bool launches_async() const override { return ops_->launches_async(); }
  // More rows of logits than max_num_seqs (prompt log-probabilities) are taken in several goes, so that the buffer for
  // them stays small; such a step, and any that reports on its prompt, is waited for here.
  absl::Status Launch(const StepPlan& plan) override;
  absl::StatusOr<StepResult> Take() override;
  std::string DescribeWorkers() const override { return ops_->DescribeWorkers(); }

  const RunnerOptions& options() const { return options_; }
  const ModelSpec& spec() const { return decoder_->spec(); }
  // What an engine has to know of the runner and its model: sizes, and what plans are made by.
  void SetEngineOptions(EngineOptions* options) const;
  int64_t weight_bytes() const { return decoder_->weights().resident_bytes; }
  int64_t kv_bytes() const { return kv_->shape().bytes(); }
  // For tests and tools: the device holds the logits of the last step's last `max_num_seqs` rows.
  Ops& ops() { return *ops_; }

 private:
  Runner(std::unique_ptr<Ops> ops, const RunnerOptions& options) : ops_(std::move(ops)), options_(options) {}
  absl::Status WarmUp();

  struct InFlightStep {
    StepResult result;
    bool complete = false;  // false: its samples are still to be taken from the device
  };

  BatchView MakeBatch(const StepPlan& plan);
  // Takes what the device still owes to `step`.
  absl::Status Complete(InFlightStep* step);
  // Makes sample_rows_ and sample_entries_ of those samples whose logits are rows [first, first + count) of the plan's.
  void MakeSampleRows(const StepPlan& plan, int32_t first, int32_t count);
  // Draws and reports for these rows, which are on the device now.
  absl::Status Sample(const StepPlan& plan, int32_t first, int32_t count, StepResult* result);
  absl::Status ReportPrompt(const StepPlan& plan, int32_t first, int32_t count, StepResult* result);

  // Order matters: everything below is made by ops_ and goes before it.
  const std::unique_ptr<Ops> ops_;
  const RunnerOptions options_;
  std::vector<AttentionMask> kv_groups_;  // what the layers of each KV group see: every plan has a KvGroupPlan for each
  NumericsOptions numerics_;              // options_.numerics and the model's
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Decoder> decoder_;

  std::deque<InFlightStep> in_flight_;  // oldest first

  // Reused from step to step.
  std::vector<int32_t> token_ids_;
  std::vector<KvGroupView> group_views_;
  std::vector<SampleRow> sample_rows_;
  std::vector<SampleResult> sample_results_;
  std::vector<size_t> sample_entries_;  // index into plan.samples of each row
  std::vector<LogprobRow> logprob_rows_;
  std::vector<TokenLogprobs> logprob_results_;
  std::vector<size_t> logprob_entries_;
};

}  // namespace sluice
