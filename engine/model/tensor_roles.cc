#include "engine/model/tensor_roles.h"

#include <optional>
#include <utility>

namespace sluice {
namespace {

// Collects the tensors of one layer or of the model as a whole.
class Collector {
 public:
  Collector(const ModelSpec& spec, std::vector<ExpectedTensor>* out) : spec_(spec), out_(*out) {}

  void SetLayer(int32_t layer) { layer_ = layer; }

  void Add(TensorRole role, std::vector<int64_t> shape) { out_.push_back({role, layer_, std::move(shape)}); }
  void AddIf(bool present, TensorRole role, std::vector<int64_t> shape) {
    if (present) Add(role, std::move(shape));
  }

  void Norm(const std::optional<NormParams>& norm, TensorRole weight, TensorRole bias) {
    if (!norm.has_value()) return;
    Add(weight, {spec_.d_model});
    AddIf(norm->kind == NormKind::kLayer, bias, {spec_.d_model});
  }

  void Attention(const AttentionSpec& attention, const Gqa& gqa) {
    const int64_t q = int64_t{gqa.num_heads} * gqa.head_dim;
    const int64_t k = int64_t{gqa.num_kv_heads} * gqa.head_dim;
    const int64_t v = int64_t{gqa.num_kv_heads} * gqa.value_head_dim;
    Add(TensorRole::kQ, {q, spec_.d_model});
    AddIf(attention.q_bias, TensorRole::kQBias, {q});
    Add(TensorRole::kK, {k, spec_.d_model});
    AddIf(attention.k_bias, TensorRole::kKBias, {k});
    Add(TensorRole::kV, {v, spec_.d_model});
    AddIf(attention.v_bias, TensorRole::kVBias, {v});
    if (gqa.qk_norm.kind == QkNormKind::kPerHead || gqa.qk_norm.kind == QkNormKind::kFullWidth) {
      const bool full = gqa.qk_norm.kind == QkNormKind::kFullWidth;
      Add(TensorRole::kQNorm, {full ? q : gqa.head_dim});
      Add(TensorRole::kKNorm, {full ? k : gqa.head_dim});
    }
    AddIf(attention.sinks, TensorRole::kSinks, {gqa.num_heads});
    Add(TensorRole::kO, {spec_.d_model, int64_t{gqa.num_heads} * gqa.value_head_dim});
    AddIf(attention.o_bias, TensorRole::kOBias, {spec_.d_model});
  }

  void Attention(const AttentionSpec& attention, const Mla& mla) {
    const int64_t heads = mla.num_heads;
    const int64_t q = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
    if (mla.q_lora_rank.has_value()) {
      Add(TensorRole::kQDown, {*mla.q_lora_rank, spec_.d_model});
      AddIf(attention.q_bias, TensorRole::kQBias, {*mla.q_lora_rank});
      Add(TensorRole::kQLatentNorm, {*mla.q_lora_rank});
      Add(TensorRole::kQUp, {q, *mla.q_lora_rank});
    } else {
      Add(TensorRole::kQ, {q, spec_.d_model});
      AddIf(attention.q_bias, TensorRole::kQBias, {q});
    }
    Add(TensorRole::kKvDown, {mla.kv_lora_rank + mla.qk_rope_head_dim, spec_.d_model});
    AddIf(attention.k_bias, TensorRole::kKBias, {mla.kv_lora_rank + mla.qk_rope_head_dim});
    Add(TensorRole::kKvLatentNorm, {mla.kv_lora_rank});
    Add(TensorRole::kKeyUp, {heads, mla.qk_nope_head_dim, mla.kv_lora_rank});
    Add(TensorRole::kValueUp, {heads, mla.v_head_dim, mla.kv_lora_rank});
    Add(TensorRole::kO, {spec_.d_model, heads * mla.v_head_dim});
    AddIf(attention.o_bias, TensorRole::kOBias, {spec_.d_model});
  }

  void Ffn(const DenseFfn& ffn) {
    AddIf(ffn.gated, TensorRole::kGate, {ffn.intermediate_size, spec_.d_model});
    AddIf(ffn.gated && ffn.bias, TensorRole::kGateBias, {ffn.intermediate_size});
    Add(TensorRole::kUp, {ffn.intermediate_size, spec_.d_model});
    AddIf(ffn.bias, TensorRole::kUpBias, {ffn.intermediate_size});
    Add(TensorRole::kDown, {spec_.d_model, ffn.intermediate_size});
    AddIf(ffn.bias, TensorRole::kDownBias, {spec_.d_model});
  }

  void Ffn(const MoeFfn& moe) {
    const int64_t experts = moe.routing.num_experts;
    const int64_t width = moe.expert_intermediate_size;
    Add(TensorRole::kRouter, {experts, spec_.d_model});
    AddIf(moe.router_bias, TensorRole::kRouterBias, {experts});
    AddIf(moe.selection_bias, TensorRole::kSelectionBias, {experts});
    Add(TensorRole::kExpertGate, {experts, width, spec_.d_model});
    AddIf(moe.expert_bias, TensorRole::kExpertGateBias, {experts, width});
    Add(TensorRole::kExpertUp, {experts, width, spec_.d_model});
    AddIf(moe.expert_bias, TensorRole::kExpertUpBias, {experts, width});
    Add(TensorRole::kExpertDown, {experts, spec_.d_model, width});
    AddIf(moe.expert_bias, TensorRole::kExpertDownBias, {experts, spec_.d_model});
    if (moe.shared_intermediate_size.has_value()) {
      Add(TensorRole::kSharedGate, {*moe.shared_intermediate_size, spec_.d_model});
      Add(TensorRole::kSharedUp, {*moe.shared_intermediate_size, spec_.d_model});
      Add(TensorRole::kSharedDown, {spec_.d_model, *moe.shared_intermediate_size});
    }
  }

 private:
  const ModelSpec& spec_;
  std::vector<ExpectedTensor>& out_;
  int32_t layer_ = -1;
};

}  // namespace

int64_t ExpectedTensor::num_elements() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelSpec& spec) {
  std::vector<ExpectedTensor> tensors;
  Collector collect(spec, &tensors);
  collect.Add(TensorRole::kTokenEmbedding, {spec.vocab_size, spec.d_model});
  collect.AddIf(spec.position_embedding == PositionEmbedding::kLearned, TensorRole::kPositionEmbedding,
                {spec.max_position, spec.d_model});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    collect.SetLayer(int32_t(i));
    collect.Norm(layer.pre_attn, TensorRole::kPreAttnNorm, TensorRole::kPreAttnNormBias);
    std::visit([&](const auto& kind) { collect.Attention(layer.attention, kind); }, layer.attention.kind);
    collect.Norm(layer.post_attn, TensorRole::kPostAttnNorm, TensorRole::kPostAttnNormBias);
    collect.Norm(layer.pre_ffn, TensorRole::kPreFfnNorm, TensorRole::kPreFfnNormBias);
    std::visit([&](const auto& kind) { collect.Ffn(kind); }, layer.ffn);
    collect.Norm(layer.post_ffn, TensorRole::kPostFfnNorm, TensorRole::kPostFfnNormBias);
  }
  collect.SetLayer(-1);
  collect.Norm(spec.final_norm, TensorRole::kFinalNorm, TensorRole::kFinalNormBias);
  collect.AddIf(!spec.tied_embeddings, TensorRole::kOutputHead, {spec.vocab_size, spec.d_model});
  return tensors;
}

}  // namespace sluice
