// Looks into a forward pass: an Ops that hands everything to another one and keeps the residual stream behind each
// layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/ops/ops.h"

namespace sluice::testing {

class LayerTap : public Ops {
 public:
  explicit LayerTap(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  // Of the last step while `listening`: [layer][row][d_model].
  bool listening = false;
  const std::vector<std::vector<std::vector<float>>>& states() const { return states_; }

  std::string Description() const override { return ops_->Description(); }
  absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView> parts,
                                                            LinearLayout layout) override {
    return ops_->LoadLinear(parts, layout);
  }
  absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                             LinearLayout layout) override {
    return ops_->LoadExperts(experts, layout);
  }
  absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                          const Mla& heads) override {
    return ops_->LoadMlaUp(key_up, value_up, heads);
  }
  absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float> values) override {
    return ops_->LoadVector(values);
  }
  absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(const RopeTable& table, int32_t max_position) override {
    return ops_->LoadRope(table, max_position);
  }
  absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t rows, int64_t cols, ActivationsUse use) override {
    return ops_->NewActivations(rows, cols, use);
  }
  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) override {
    return ops_->NewKvCache(shape);
  }
  absl::Status Reserve(const StepLimits& limits, const KvCacheShape& kv,
                       absl::FunctionRef<void(KvCache*)> operations) override {
    return ops_->Reserve(limits, kv, operations);
  }

  void BeginStep(const BatchView& batch) override {
    num_rows_ = int64_t(batch.token_ids.size());
    states_.clear();
    ops_->BeginStep(batch);
  }
  void Embed(const LinearWeights& table, float scale, Activations* x) override { ops_->Embed(table, scale, x); }
  void AddPositions(const LinearWeights& table, Activations* x) override { ops_->AddPositions(table, x); }
  void Qkv(const QkvArgs& args) override { ops_->Qkv(args); }
  void Attention(const AttentionArgs& args) override { ops_->Attention(args); }
  void Project(const ProjectArgs& args) override { ops_->Project(args); }
  void MlaQkv(const MlaQkvArgs& args) override { ops_->MlaQkv(args); }
  void MlaAttention(const MlaAttentionArgs& args) override { ops_->MlaAttention(args); }
  void Ffn(const DenseFfnArgs& args) override {
    ops_->Ffn(args);
    Keep(*args.x);
  }
  void Moe(const MoeArgs& args) override {
    ops_->Moe(args);
    Keep(*args.x);
  }
  void Logits(const LogitsArgs& args) override { ops_->Logits(args); }
  absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    return ops_->Sample(rows, results);
  }
  absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) override {
    return ops_->Logprobs(rows, results);
  }
  absl::Status CopyLogits(int32_t row, std::span<float> out) override { return ops_->CopyLogits(row, out); }
  absl::Status CopyActivations(const Activations& activations, int64_t row, std::span<float> out) override {
    return ops_->CopyActivations(activations, row, out);
  }

 private:
  // The feed-forward is the last of a layer.
  void Keep(const Activations& x);

  const std::unique_ptr<Ops> ops_;
  int64_t num_rows_ = 0;
  std::vector<std::vector<std::vector<float>>> states_;
};

}  // namespace sluice::testing
