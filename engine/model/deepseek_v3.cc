// DeepSeek-V3 and R1: multi-head latent attention with YaRN, then a dense FFN in the first layers and a mixture of
// experts (sigmoid scores, grouped choice, one shared expert) in the rest. DeepSeek-AI 2024, arXiv:2412.19437.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/rope.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr int64_t kMax = INT32_MAX;
constexpr int64_t kMaxSize = 1 << 20;  // keeps the products of two sizes below within 64 bits and of MLA's within 32

constexpr TensorName kTensors[] = {
    {kTokenEmbedding, "model.embed_tokens.weight"},
    {kFinalNorm, "model.norm.weight"},
    {kOutputHead, "lm_head.weight"},
    {kPreAttnNorm, "model.layers.{layer}.input_layernorm.weight"},
    {kPreFfnNorm, "model.layers.{layer}.post_attention_layernorm.weight"},
    {kQ, "model.layers.{layer}.self_attn.q_proj.weight"},
    {kQDown, "model.layers.{layer}.self_attn.q_a_proj.weight"},
    {kQBias, "model.layers.{layer}.self_attn.q_a_proj.bias"},
    {kQLatentNorm, "model.layers.{layer}.self_attn.q_a_layernorm.weight"},
    {kQUp, "model.layers.{layer}.self_attn.q_b_proj.weight"},
    {kKvDown, "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"},
    {kKBias, "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.bias"},
    {kKvLatentNorm, "model.layers.{layer}.self_attn.kv_a_layernorm.weight"},
    {kKeyUp, "model.layers.{layer}.self_attn.kv_b_proj.weight", {.rows = TensorRows::kStacked}},
    {kValueUp, "model.layers.{layer}.self_attn.kv_b_proj.weight", {.rows = TensorRows::kStacked}},
    {kO, "model.layers.{layer}.self_attn.o_proj.weight"},
    {kOBias, "model.layers.{layer}.self_attn.o_proj.bias"},
    {kGate, "model.layers.{layer}.mlp.gate_proj.weight"},
    {kUp, "model.layers.{layer}.mlp.up_proj.weight"},
    {kDown, "model.layers.{layer}.mlp.down_proj.weight"},
    {kRouter, "model.layers.{layer}.mlp.gate.weight"},
    {kSelectionBias, "model.layers.{layer}.mlp.gate.e_score_correction_bias"},
    {kExpertGate, "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"},
    {kExpertUp, "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
    {kExpertDown, "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    {kSharedGate, "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    {kSharedUp, "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
    {kSharedDown, "model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

absl::StatusOr<Mla> ReadMla(const ConfigJson& config) {
  Mla mla;
  SLUICE_ASSIGN_OR_RETURN(mla.num_heads, config.GetInt("num_attention_heads", 1, kMaxSize));
  if (!config.IsNull("q_lora_rank")) {
    SLUICE_ASSIGN_OR_RETURN(mla.q_lora_rank, config.IntOr("q_lora_rank", 1, kMaxSize, 1536));
  }
  SLUICE_ASSIGN_OR_RETURN(mla.kv_lora_rank, config.IntOr("kv_lora_rank", 1, kMaxSize, 512));
  SLUICE_ASSIGN_OR_RETURN(mla.qk_nope_head_dim, config.IntOr("qk_nope_head_dim", 1, kMaxSize, 128));
  SLUICE_ASSIGN_OR_RETURN(mla.qk_rope_head_dim, config.IntOr("qk_rope_head_dim", 2, 1 << 16, 64));
  SLUICE_ASSIGN_OR_RETURN(mla.v_head_dim, config.IntOr("v_head_dim", 1, kMaxSize, 128));
  if (mla.qk_rope_head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.name(), ": key 'qk_rope_head_dim' is ", mla.qk_rope_head_dim, ", expected an even number"));
  }
  return mla;
}

// The product of YaRN's magnitude for queries and for keys is part of the softmax scale, not of cos and sin.
float SoftmaxScale(const Mla& mla, const RopeScaling& scaling) {
  double scale = 1 / std::sqrt(double(mla.qk_nope_head_dim) + mla.qk_rope_head_dim);
  if (const YarnRope* yarn = std::get_if<YarnRope>(&scaling); yarn != nullptr && yarn->mscale_all_dim != 0) {
    const double magnitude = YarnMagnitude(yarn->factor, yarn->mscale_all_dim);
    scale *= magnitude * magnitude;
  }
  return float(scale);
}

absl::StatusOr<MoeFfn> ReadMoe(const ConfigJson& config) {
  MoeFfn moe;
  moe.routing.score = MoeScore::kSigmoid;
  moe.selection_bias = true;
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts, config.GetInt("n_routed_experts", 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, config.GetInt("num_experts_per_tok", 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(moe.expert_intermediate_size, config.GetInt("moe_intermediate_size", 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_groups, config.IntOr("n_group", 1, kMaxSize, 8));
  if (num_groups > 1) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t kept, config.IntOr("topk_group", 1, kMaxSize, 4));
    moe.routing.groups = MoeGroups{int32_t(num_groups), int32_t(kept), MoeGroupScore::kTop2Sum};
  }
  SLUICE_ASSIGN_OR_RETURN(moe.routing.renormalize, config.BoolOr("norm_topk_prob", true));
  moe.routing.renormalize_eps = 1e-20f;
  SLUICE_ASSIGN_OR_RETURN(moe.routing.routed_scale, config.FloatOr("routed_scaling_factor", 2.5f));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_shared, config.IntOr("n_shared_experts", 0, 1 << 10, 1));
  if (num_shared > 0) moe.shared_intermediate_size = int32_t(num_shared * moe.expert_intermediate_size);
  return moe;
}

}  // namespace

TensorNaming DeepseekV3TensorNames() { return {.names = kTensors}; }

absl::StatusOr<ModelSpec> DeepseekV3FromConfig(const ConfigJson& config) {
  ModelSpec spec;
  spec.architecture = "deepseek_v3";
  SLUICE_ASSIGN_OR_RETURN(spec.vocab_size, config.GetInt("vocab_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, config.GetInt("hidden_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, config.IntOr("max_position_embeddings", 1, kMax, 4096));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_layers, config.GetInt("num_hidden_layers", 1, 1 << 16));
  SLUICE_ASSIGN_OR_RETURN(const int64_t intermediate, config.GetInt("intermediate_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_dense, config.IntOr("first_k_dense_replace", 0, kMax, 3));
  SLUICE_ASSIGN_OR_RETURN(const float eps, config.FloatOr("rms_norm_eps", 1e-6f));
  SLUICE_ASSIGN_OR_RETURN(const Mla mla, ReadMla(config));
  SLUICE_ASSIGN_OR_RETURN(const MoeFfn moe, ReadMoe(config));
  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope, ReadRopeConfig(config, {.max_position = spec.max_position}));
  SLUICE_ASSIGN_OR_RETURN(const bool interleaved, config.BoolOr("rope_interleave", true));
  SLUICE_ASSIGN_OR_RETURN(const bool bias, config.BoolOr("attention_bias", false));

  const NormParams norm{.eps = eps};
  LayerSpec layer;
  layer.pre_attn = norm;
  layer.pre_ffn = norm;
  layer.attention.kind = mla;
  SLUICE_ASSIGN_OR_RETURN(layer.attention.rope,
                          AddRope(config.name(), rope, mla.qk_rope_head_dim,
                                  interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit, &spec));
  layer.attention.scale = SoftmaxScale(mla, rope.scaling);
  // A query made in one piece has no bias in this family.
  layer.attention.q_bias = bias && mla.q_lora_rank.has_value();
  layer.attention.k_bias = layer.attention.o_bias = bias;
  for (int64_t i = 0; i < num_layers; ++i) {
    if (i < num_dense) {
      layer.ffn = DenseFfn{.intermediate_size = int32_t(intermediate)};
    } else {
      layer.ffn = moe;
    }
    spec.layers.push_back(layer);
  }
  spec.final_norm = norm;
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", false));
  return spec;
}

}  // namespace sluice
