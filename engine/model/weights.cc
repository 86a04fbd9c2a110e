#include "engine/model/weights.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/in_file.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/tensor_roles.h"
#include "engine/model/tensors_by_role.h"

namespace sluice {
namespace {

// Brings the tensors of one layer (or of the model, layer -1) onto the device.
class Loader {
 public:
  Loader(const TensorsByRole& tensors, const std::string& file, Ops* ops, int64_t* resident_bytes)
      : tensors_(tensors), file_(file), ops_(ops), resident_bytes_(*resident_bytes) {}

  void SetLayer(int32_t layer) { layer_ = layer; }

  // One matrix of several parts; null if the file has none of them.
  absl::Status Linear(std::initializer_list<TensorRole> roles, LinearLayout layout,
                      std::unique_ptr<LinearWeights>* out) {
    std::vector<ReadTensor> parts;
    std::vector<TensorView> views;
    for (TensorRole role : roles) {
      const StoredRole* stored = tensors_.Find(role, layer_);
      if (stored == nullptr) continue;
      SLUICE_ASSIGN_OR_RETURN(ReadTensor part, Read(stored->Matrix(0)));
      views.push_back(part.view);
      parts.push_back(std::move(part));
    }
    if (views.empty()) return absl::OkStatus();
    return Keep(ops_->LoadLinear(views, layout), out);
  }

  // The same matrices of every expert.
  absl::Status Experts(std::initializer_list<TensorRole> roles, LinearLayout layout,
                       std::unique_ptr<ExpertWeights>* out) {
    std::vector<ReadTensor> parts;
    std::vector<std::vector<TensorView>> views;
    for (TensorRole role : roles) {
      const StoredRole& stored = *tensors_.Find(role, layer_);
      views.resize(size_t(stored.count()));
      for (int64_t e = 0; e < stored.count(); ++e) {
        SLUICE_ASSIGN_OR_RETURN(ReadTensor part, Read(stored.Matrix(e)));
        views[size_t(e)].push_back(part.view);
        parts.push_back(std::move(part));
      }
    }
    return Keep(ops_->LoadExperts(views, layout), out);
  }

  // One vector of several parts, each of the length that goes with it; zeros for a part that is not there, null if none
  // is. Of every expert in turn where the roles are theirs.
  absl::Status Vector(std::initializer_list<std::pair<TensorRole, int64_t>> parts,
                      std::unique_ptr<VectorWeights>* out) {
    int64_t count = 0;
    for (const auto& [role, size] : parts) {
      if (const StoredRole* stored = tensors_.Find(role, layer_)) count = stored->count();
    }
    if (count == 0) return absl::OkStatus();
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      for (const auto& [role, size] : parts) {
        values.resize(values.size() + size_t(size));
        const StoredRole* stored = tensors_.Find(role, layer_);
        if (stored == nullptr) continue;
        SLUICE_CHECK(stored->rows() == size);
        ReadVector(stored->Matrix(i), values.data() + values.size() - size_t(size));
      }
    }
    absl::StatusOr<std::unique_ptr<VectorWeights>> loaded = ops_->LoadVector(values);
    if (!loaded.ok()) return InFile(file_, loaded.status());
    *out = *std::move(loaded);
    return absl::OkStatus();
  }
  absl::Status Vector(TensorRole role, std::unique_ptr<VectorWeights>* out) {
    const StoredRole* stored = tensors_.Find(role, layer_);
    if (stored == nullptr) return absl::OkStatus();
    return Vector({{role, stored->rows()}}, out);
  }

  absl::Status Norm(TensorRole weight, TensorRole bias, NormWeights* out) {
    SLUICE_RETURN_IF_ERROR(Vector(weight, &out->weight));
    return Vector(bias, &out->bias);
  }

  absl::Status Layer(const LayerSpec& spec, LayerWeights* out) {
    using enum TensorRole;
    SLUICE_RETURN_IF_ERROR(Norm(kPreAttnNorm, kPreAttnNormBias, &out->pre_attn));
    SLUICE_RETURN_IF_ERROR(Norm(kPostAttnNorm, kPostAttnNormBias, &out->post_attn));
    SLUICE_RETURN_IF_ERROR(Norm(kPreFfnNorm, kPreFfnNormBias, &out->pre_ffn));
    SLUICE_RETURN_IF_ERROR(Norm(kPostFfnNorm, kPostFfnNormBias, &out->post_ffn));
    SLUICE_RETURN_IF_ERROR(std::visit([&](const auto& kind) { return Attention(kind, out); }, spec.attention.kind));
    SLUICE_RETURN_IF_ERROR(Linear({kO}, LinearLayout::kStacked, &out->attn_out));
    SLUICE_RETURN_IF_ERROR(Vector(kOBias, &out->attn_out_bias));
    return std::visit([&](const auto& kind) { return Ffn(kind, out); }, spec.ffn);
  }

  absl::Status Attention(const Gqa& gqa, LayerWeights* out) {
    using enum TensorRole;
    SLUICE_RETURN_IF_ERROR(Linear({kQ, kK, kV}, LinearLayout::kStacked, &out->qkv));
    SLUICE_RETURN_IF_ERROR(Vector({{kQBias, int64_t{gqa.num_heads} * gqa.head_dim},
                                   {kKBias, int64_t{gqa.num_kv_heads} * gqa.head_dim},
                                   {kVBias, int64_t{gqa.num_kv_heads} * gqa.value_head_dim}},
                                  &out->qkv_bias));
    SLUICE_RETURN_IF_ERROR(Vector(kQNorm, &out->q_norm));
    SLUICE_RETURN_IF_ERROR(Vector(kKNorm, &out->k_norm));
    return Vector(kSinks, &out->sinks);
  }

  absl::Status Attention(const Mla& mla, LayerWeights* out) {
    using enum TensorRole;
    const int64_t q = int64_t{mla.num_heads} * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
    SLUICE_RETURN_IF_ERROR(
        Linear({mla.q_lora_rank.has_value() ? kQDown : kQ, kKvDown}, LinearLayout::kStacked, &out->mla.down));
    SLUICE_RETURN_IF_ERROR(Vector({{kQBias, mla.q_lora_rank.has_value() ? int64_t{*mla.q_lora_rank} : q},
                                   {kKBias, int64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim}},
                                  &out->mla.down_bias));
    SLUICE_RETURN_IF_ERROR(Vector(kQLatentNorm, &out->mla.q_latent_norm));
    SLUICE_RETURN_IF_ERROR(Linear({kQUp}, LinearLayout::kStacked, &out->mla.q_up));
    SLUICE_RETURN_IF_ERROR(Vector(kKvLatentNorm, &out->mla.kv_latent_norm));
    return MlaUp(mla, &out->mla.up);
  }

  absl::Status Ffn(const DenseFfn& ffn, LayerWeights* out) {
    using enum TensorRole;
    const int64_t width = ffn.intermediate_size;
    if (ffn.gated) {
      SLUICE_RETURN_IF_ERROR(Linear({kGate, kUp}, LinearLayout::kGateUp, &out->gate_up));
      SLUICE_RETURN_IF_ERROR(Vector({{kGateBias, width}, {kUpBias, width}}, &out->gate_up_bias));
    } else {
      SLUICE_RETURN_IF_ERROR(Linear({kUp}, LinearLayout::kStacked, &out->gate_up));
      SLUICE_RETURN_IF_ERROR(Vector(kUpBias, &out->gate_up_bias));
    }
    SLUICE_RETURN_IF_ERROR(Linear({kDown}, LinearLayout::kStacked, &out->down));
    return Vector(kDownBias, &out->down_bias);
  }

  absl::Status Ffn(const MoeFfn& moe, LayerWeights* out) {
    using enum TensorRole;
    const int64_t width = moe.expert_intermediate_size;
    MoeWeights& weights = out->moe;
    SLUICE_RETURN_IF_ERROR(Linear({kRouter}, LinearLayout::kRouter, &weights.router));
    SLUICE_RETURN_IF_ERROR(Vector(kRouterBias, &weights.router_bias));
    SLUICE_RETURN_IF_ERROR(Vector(kSelectionBias, &weights.selection_bias));
    SLUICE_RETURN_IF_ERROR(Experts({kExpertGate, kExpertUp}, LinearLayout::kGateUp, &weights.gate_up));
    SLUICE_RETURN_IF_ERROR(Vector({{kExpertGateBias, width}, {kExpertUpBias, width}}, &weights.gate_up_bias));
    SLUICE_RETURN_IF_ERROR(Experts({kExpertDown}, LinearLayout::kStacked, &weights.down));
    SLUICE_RETURN_IF_ERROR(Vector(kExpertDownBias, &weights.down_bias));
    SLUICE_RETURN_IF_ERROR(Linear({kSharedGate, kSharedUp}, LinearLayout::kGateUp, &weights.shared_gate_up));
    return Linear({kSharedDown}, LinearLayout::kStacked, &weights.shared_down);
  }

  absl::Status MlaUp(const Mla& mla, std::unique_ptr<MlaUpWeights>* out) {
    SLUICE_ASSIGN_OR_RETURN(const ReadTensor key_up, AllHeads(TensorRole::kKeyUp));
    SLUICE_ASSIGN_OR_RETURN(const ReadTensor value_up, AllHeads(TensorRole::kValueUp));
    return Keep(ops_->LoadMlaUp(key_up.view, value_up.view, mla), out);
  }

 private:
  // The matrices of all heads one after the other: [num_heads, rows, cols]. A copy, which is small.
  absl::StatusOr<ReadTensor> AllHeads(TensorRole role) const {
    const StoredRole& stored = *tensors_.Find(role, layer_);
    ReadTensor all;
    size_t bytes = 0;
    for (int64_t head = 0; head < stored.count(); ++head) {
      SLUICE_ASSIGN_OR_RETURN(const ReadTensor one, Read(stored.Matrix(head)));
      if (head == 0) {
        bytes = one.view.data.size();
        all.bytes = std::make_unique_for_overwrite<uint8_t[]>(bytes * size_t(stored.count()));
        all.view = {one.view.name,
                    one.view.type,
                    {stored.count(), stored.rows(), stored.cols()},
                    {all.bytes.get(), bytes * size_t(stored.count())}};
      }
      std::memcpy(&all.bytes[bytes * size_t(head)], one.view.data.data(), bytes);
    }
    return all;
  }

  absl::StatusOr<ReadTensor> Read(const StoredMatrix& matrix) const {
    absl::StatusOr<ReadTensor> read = ReadMatrix(matrix);
    if (!read.ok()) return InFile(file_, read.status());
    return read;
  }

  template <typename T>
  absl::Status Keep(absl::StatusOr<std::unique_ptr<T>> loaded, std::unique_ptr<T>* out) {
    if (!loaded.ok()) return InFile(file_, loaded.status());
    *out = *std::move(loaded);
    resident_bytes_ += (*out)->resident_bytes();
    return absl::OkStatus();
  }

  const TensorsByRole& tensors_;
  const std::string& file_;
  Ops* const ops_;
  int64_t& resident_bytes_;
  int32_t layer_ = -1;
};

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const ModelSpec& spec, const TensorNaming& naming,
                                         absl::Span<const TensorView> tensors, const std::string& file, Ops* ops,
                                         Fp8BlockSize fp8_block) {
  SLUICE_ASSIGN_OR_RETURN(const TensorsByRole matched, TensorsByRole::Match(spec, naming, tensors, file, fp8_block));
  for (const std::string& warning : matched.warnings()) LogWarning(warning);
  ModelWeights weights;
  Loader loader(matched, file, ops, &weights.resident_bytes);
  SLUICE_RETURN_IF_ERROR(loader.Linear({TensorRole::kTokenEmbedding}, LinearLayout::kStacked, &weights.embedding));
  SLUICE_RETURN_IF_ERROR(loader.Linear({TensorRole::kPositionEmbedding}, LinearLayout::kStacked, &weights.positions));
  SLUICE_RETURN_IF_ERROR(loader.Norm(TensorRole::kFinalNorm, TensorRole::kFinalNormBias, &weights.final_norm));
  SLUICE_RETURN_IF_ERROR(loader.Linear({TensorRole::kOutputHead}, LinearLayout::kStacked, &weights.head));
  weights.layers.resize(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    loader.SetLayer(int32_t(i));
    SLUICE_RETURN_IF_ERROR(loader.Layer(spec.layers[i], &weights.layers[i]));
  }
  return weights;
}

}  // namespace sluice
