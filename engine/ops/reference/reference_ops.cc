#include "engine/ops/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/ops/reference/reference_math.h"
#include "engine/ops/reference/reference_mla.h"
#include "engine/ops/reference/reference_moe.h"
#include "engine/ops/reference/reference_sample.h"
#include "engine/ops/reference/reference_types.h"
#include "engine/ops/validate.h"

namespace sluice {
namespace reference {
namespace {

class ReferenceOps : public Ops {
 public:
  std::string Description() const override { return "reference"; }

  absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView> parts,
                                                            LinearLayout layout) override {
    SLUICE_RETURN_IF_ERROR(ValidateLinearParts(parts, layout));
    return std::make_unique<Matrix>(ReadMatrix(parts));
  }

  absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                             LinearLayout layout) override {
    return reference::LoadExperts(experts, layout);
  }
  absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                          const Mla& heads) override {
    return reference::LoadMlaUp(key_up, value_up, heads);
  }

  absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float> values) override {
    auto v = std::make_unique<Vector>();
    v->values.assign(values.begin(), values.end());
    return v;
  }

  absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(const RopeTable& table, int32_t max_position) override {
    auto t = std::make_unique<Rope>();
    t->table = table;
    t->max_position = max_position;
    return t;
  }

  absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t rows, int64_t cols, ActivationsUse) override {
    auto a = std::make_unique<Rows>();
    a->num_rows = rows;
    a->num_cols = cols;
    a->values.resize(size_t(rows * cols));
    return a;
  }

  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) override {
    SLUICE_RETURN_IF_ERROR(ValidateKvCacheShape(shape));
    auto kv = std::make_unique<Cache>();
    kv->cache_shape = shape;
    for (size_t i = 0; i < shape.layers.size(); i++) {
      const bool owns = shape.StorageOwner(i) == i;
      kv->storages.emplace_back(owns ? size_t(int64_t{shape.num_blocks} * shape.block_size * kv->slot_values(int(i)))
                                     : 0);
    }
    return kv;
  }

  absl::Status Reserve(const StepLimits&, const KvCacheShape&, absl::FunctionRef<void(KvCache*)>) override {
    return absl::OkStatus();
  }

  void BeginStep(const BatchView& batch) override {
    batch_ = batch;
    SLUICE_CHECK(batch.row_starts.size() == batch.context_lens.size() + 1);
    SLUICE_CHECK(batch.positions.size() == batch.token_ids.size());
    SLUICE_CHECK(batch.row_starts.back() == num_tokens());
  }

  void Embed(const LinearWeights& table, float scale, Activations* x) override {
    for (int r = 0; r < num_tokens(); r++) {
      const float* row = &M(&table).values[size_t(batch_.token_ids[r] * M(&table).in)];
      for (int64_t i = 0; i < M(&table).in; i++) R(x).row(r)[i] = row[i] * scale;
    }
  }

  void AddPositions(const LinearWeights& table, Activations* x) override {
    for (int r = 0; r < num_tokens(); r++) {
      const float* row = &M(&table).values[size_t(batch_.positions[r] * M(&table).in)];
      for (int64_t i = 0; i < M(&table).in; i++) R(x).row(r)[i] += row[i];
    }
  }

  void Qkv(const QkvArgs& args) override {
    const Gqa& h = args.heads;
    Cache& kv = static_cast<Cache&>(*args.kv);
    for (int r = 0; r < num_tokens(); r++) {
      Floats y = Multiply(M(args.qkv), NormedRow(R(args.x), r, args.norm).data(), V(args.bias));
      float* q = y.data();
      float* k = q + h.num_heads * h.head_dim;
      float* v = k + h.num_kv_heads * h.head_dim;
      const auto norm = [&] {
        NormHeads(h.qk_norm, args.q_norm, q, h.num_heads, h.head_dim);
        NormHeads(h.qk_norm, args.k_norm, k, h.num_kv_heads, h.head_dim);
      };
      if (!h.qk_norm.after_rope) norm();
      const int32_t position = batch_.positions[r];
      if (args.rope) {
        const Rotation rotation = RotationAt(*args.rope, batch_, SequenceOf(r), position);
        for (int i = 0; i < h.num_heads + h.num_kv_heads; i++) Rotate(*args.rope, rotation, q + i * h.head_dim);
      }
      if (h.qk_norm.after_rope) norm();
      if (args.query_temperature_floor) {
        const double steps = std::floor(double(position + 1) / double(*args.query_temperature_floor));
        const double t = 1 + double(args.query_temperature_coef) * std::log(1 + steps);
        for (int i = 0; i < h.num_heads * h.head_dim; i++) q[i] = float(q[i] * t);
      }
      std::copy(q, k, R(args.q).row(r));
      const int64_t slot = batch_.kv_groups[args.kv_group].slot_mapping[r];
      const auto round = [&](float x) { return RoundTo(kv.cache_shape.dtype, x); };
      std::transform(k, v, kv.k(args.layer, slot, 0), round);
      std::transform(v, v + h.num_kv_heads * h.value_head_dim, kv.v(args.layer, slot, 0), round);
    }
  }

  void Attention(const AttentionArgs& args) override {
    for (size_t s = 0; s < batch_.context_lens.size(); s++) {
      for (int r = batch_.row_starts[s]; r < batch_.row_starts[s + 1]; r++) {
        for (int h = 0; h < args.heads.num_heads; h++) AttendHead(args, int(s), r, h);
      }
    }
  }

  void Project(const ProjectArgs& args) override {
    for (int r = 0; r < num_tokens(); r++) {
      AddToResidual(Multiply(M(args.weight), R(args.in).row(r), V(args.bias)), args.post_norm, R(args.x).row(r));
    }
  }

  void MlaQkv(const MlaQkvArgs& args) override { reference::MlaQkv(batch_, args); }
  void MlaAttention(const MlaAttentionArgs& args) override { reference::MlaAttention(batch_, args); }
  void Moe(const MoeArgs& args) override { reference::Moe(num_tokens(), args); }
  void Ffn(const DenseFfnArgs& args) override {
    for (int r = 0; r < num_tokens(); r++) {
      Floats h = Multiply(M(args.gate_up), NormedRow(R(args.x), r, args.norm).data(), V(args.gate_up_bias));
      const size_t width = size_t(M(args.down).in);
      for (size_t i = 0; i < width; i++) {
        h[i] = float(args.gated ? ActivateGated(args.activation, args.alpha, args.limit, h[i], h[width + i])
                                : Activate(args.activation, h[i]));
      }
      AddToResidual(Multiply(M(args.down), h.data(), V(args.down_bias)), args.post_norm, R(args.x).row(r));
    }
  }

  void Logits(const LogitsArgs& args) override {
    logits_.clear();
    for (int32_t row : batch_.logits_rows) {
      Floats l = Multiply(M(args.head), NormedRow(R(args.x), row, args.norm).data(), nullptr);
      for (float& v : l) {
        v *= args.scale;
        if (args.softcap) v = float(double(*args.softcap) * std::tanh(double(v) / double(*args.softcap)));
      }
      logits_.push_back(std::move(l));
    }
  }

  absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    for (size_t i = 0; i < rows.size(); i++) results[i] = ReferenceSample(logits_[rows[i].logits_row], rows[i]);
    return absl::OkStatus();
  }

  absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) override {
    for (size_t i = 0; i < rows.size(); i++) {
      results[i] = ReferenceLogprobs(logits_[rows[i].logits_row], rows[i].token, rows[i].num_top);
    }
    return absl::OkStatus();
  }

  absl::Status CopyLogits(int32_t row, std::span<float> out) override {
    std::copy(logits_[row].begin(), logits_[row].end(), out.begin());
    return absl::OkStatus();
  }

  absl::Status CopyActivations(const Activations& activations, int64_t row, std::span<float> out) override {
    std::copy_n(R(&activations).row(row), activations.cols(), out.begin());
    return absl::OkStatus();
  }

 private:
  int num_tokens() const { return int(batch_.token_ids.size()); }
  int SequenceOf(int row) const {
    return int(std::upper_bound(batch_.row_starts.begin(), batch_.row_starts.end(), row) - batch_.row_starts.begin()) -
           1;
  }

  void AttendHead(const AttentionArgs& args, int sequence, int row, int head) {
    const Gqa& shape = args.heads;
    Cache& kv = const_cast<Cache&>(static_cast<const Cache&>(*args.kv));
    const KvGroupView& group = batch_.kv_groups[args.kv_group];
    const int32_t* table = &group.block_tables[size_t(sequence) * size_t(group.block_table_stride)];
    const int64_t block_size = kv.cache_shape.block_size, position = batch_.positions[row];
    const int kv_head = head / (shape.num_heads / shape.num_kv_heads);
    const float* q = R(args.q).row(row) + head * shape.head_dim;
    const auto slot = [&](int64_t key) { return table[key / block_size] * block_size + key % block_size; };

    std::vector<double> scores(size_t(position + 1), -std::numeric_limits<double>::infinity());
    double top = args.sinks ? double(V(args.sinks)[head]) : -std::numeric_limits<double>::infinity();
    for (int64_t key = 0; key <= position; key++) {
      if (!IsVisible(args.mask, position, key)) continue;
      const float* k = kv.k(args.layer, slot(key), kv_head);
      double s = 0;
      for (int i = 0; i < shape.head_dim; i++) s += double(q[i]) * k[i];
      s *= double(args.scale);
      if (args.softcap) s = double(*args.softcap) * std::tanh(s / double(*args.softcap));
      scores[size_t(key)] = s;
      top = std::max(top, s);
    }
    double total = args.sinks ? std::exp(double(V(args.sinks)[head]) - top) : 0;
    std::vector<double> sum(size_t(shape.value_head_dim));
    for (int64_t key = 0; key <= position; key++) {
      if (!IsVisible(args.mask, position, key)) continue;
      const double p = std::exp(scores[size_t(key)] - top);
      const float* v = kv.v(args.layer, slot(key), kv_head);
      total += p;
      for (int i = 0; i < shape.value_head_dim; i++) sum[size_t(i)] += p * v[i];
    }
    float* out = R(args.out).row(row) + head * shape.value_head_dim;
    for (int i = 0; i < shape.value_head_dim; i++) out[i] = float(sum[size_t(i)] / total);
  }

  BatchView batch_;
  std::vector<Floats> logits_;  // [num_logits][vocab]
};

}  // namespace
}  // namespace reference

std::unique_ptr<Ops> NewReferenceOps() { return std::make_unique<reference::ReferenceOps>(); }

}  // namespace sluice
