// DeepSeek-V2 (arXiv:2405.04434), DeepSeek-V3 and R1 (arXiv:2412.19437) and Kimi K2 (arXiv:2507.20534): multi-head
// latent attention with YaRN, then a dense FFN in the first layers and a mixture of experts with shared ones in the
// rest. V2 chooses experts by their softmax, from groups with the best single scores; the others by sigmoids plus a
// learned bias, from groups with the best pairs.
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"
#include "engine/model/rope.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr int64_t kMax = INT32_MAX;
constexpr int64_t kMaxSize = 1 << 20;  // keeps the products of two sizes below within 64 bits and of MLA's within 32

constexpr TensorForm kStacked = {.rows = TensorRows::kStacked};
constexpr TensorForm kTransposed = {.transposed = true};

constexpr TensorName kFolderNames[] = {
    {kQDown, "{model}layers.{layer}.self_attn.q_a_proj.weight"},
    {kQBias, "{model}layers.{layer}.self_attn.q_a_proj.bias"},
    {kQLatentNorm, "{model}layers.{layer}.self_attn.q_a_layernorm.weight"},
    {kQUp, "{model}layers.{layer}.self_attn.q_b_proj.weight"},
    {kKvDown, "{model}layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"},
    {kKBias, "{model}layers.{layer}.self_attn.kv_a_proj_with_mqa.bias"},
    {kKvLatentNorm, "{model}layers.{layer}.self_attn.kv_a_layernorm.weight"},
    {kKeyUp, "{model}layers.{layer}.self_attn.kv_b_proj.weight", kStacked},
    {kValueUp, "{model}layers.{layer}.self_attn.kv_b_proj.weight", kStacked},
    {kSelectionBias, "{model}layers.{layer}.mlp.gate.e_score_correction_bias"},
    {kSharedGate, "{model}layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    {kSharedUp, "{model}layers.{layer}.mlp.shared_experts.up_proj.weight"},
    {kSharedDown, "{model}layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

// Layers beyond the last predict tokens further ahead (multi-token prediction).
constexpr absl::string_view kFolderIgnored[] = {"model.layers.{beyond}.*", "*.rotary_emb.inv_freq"};

constexpr TensorName kGgufNames[] = {
    {kQDown, "blk.{layer}.attn_q_a.weight"},
    {kQBias, "blk.{layer}.attn_q_a.bias"},
    {kQLatentNorm, "blk.{layer}.attn_q_a_norm.weight"},
    {kQUp, "blk.{layer}.attn_q_b.weight"},
    {kKvDown, "blk.{layer}.attn_kv_a_mqa.weight"},
    {kKBias, "blk.{layer}.attn_kv_a_mqa.bias"},
    {kKvLatentNorm, "blk.{layer}.attn_kv_a_norm.weight"},
    {kKeyUp, "blk.{layer}.attn_k_b.weight", kTransposed},
    {kValueUp, "blk.{layer}.attn_v_b.weight"},
    {kKeyUp, "blk.{layer}.attn_kv_b.weight", kStacked},
    {kValueUp, "blk.{layer}.attn_kv_b.weight", kStacked},
    {kSelectionBias, "blk.{layer}.exp_probs_b.bias"},
};

// For a while converters wrote the key-value projection both in one piece and split.
constexpr absl::string_view kGgufIgnored[] = {"blk.{beyond}.*", "blk.*.attn_kv_b.weight"};

// The product of YaRN's magnitude for queries and for keys is part of the softmax scale, not of cos and sin.
float SoftmaxScale(const Mla& mla, const RopeScaling& scaling) {
  double scale = 1 / std::sqrt(double(mla.qk_nope_head_dim) + mla.qk_rope_head_dim);
  if (const YarnRope* yarn = std::get_if<YarnRope>(&scaling); yarn != nullptr && yarn->mscale_all_dim != 0) {
    const double magnitude = YarnMagnitude(yarn->factor, yarn->mscale_all_dim);
    scale *= magnitude * magnitude;
  }
  return float(scale);
}

// A layer without FFN, whose queries and keys rotate by table 0.
LayerSpec MakeLayer(const Mla& mla, const RopeSpec& rope, const RopeScaling& scaling, const NormParams& norm) {
  LayerSpec layer;
  layer.pre_attn = layer.pre_ffn = norm;
  layer.attention.kind = mla;
  layer.attention.rope = rope;
  layer.attention.scale = SoftmaxScale(mla, scaling);
  return layer;
}

// Fills `spec` with layers, the first `num_dense` of which have the dense FFN.
void SetLayers(LayerSpec layer, const DenseFfn& dense, const std::optional<MoeFfn>& moe, int64_t num_layers,
               int64_t num_dense, ModelSpec* spec) {
  spec->layers.clear();
  for (int64_t i = 0; i < num_layers; ++i) {
    if (i < num_dense || !moe.has_value()) {
      layer.ffn = dense;
    } else {
      layer.ffn = *moe;
    }
    spec->layers.push_back(layer);
  }
}

// ---------------------------------------------------------------- config.json

// A key that says in words what the family does anyway.
absl::Status ExpectWord(const ConfigJson& config, absl::string_view key, absl::string_view expected) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::string> found, config.FindString(key));
  if (!found.has_value() || *found == expected) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(config.name(), ": key ", Quote(key), " is ", Quote(*found),
                                               ", which is not supported for this model_type; expected ",
                                               Quote(expected)));
}

absl::StatusOr<Mla> ReadMla(const ConfigJson& config) {
  // Latent attention has no KV heads, and `head_dim`, which newer files have, is the rotated part of a key only.
  for (absl::string_view key : {"num_key_value_heads", "head_dim", "qk_head_dim"}) config.Ignore(key);
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

// What the class of a generation assumes for keys that are missing.
struct Generation {
  absl::string_view architecture;
  int64_t max_position;
  int64_t num_dense;
  int64_t num_experts;
  int64_t num_shared;
  float routed_scale;
};
constexpr Generation kV2 = {.architecture = "deepseek_v2",
                            .max_position = 2048,
                            .num_dense = 0,
                            .num_experts = 64,
                            .num_shared = 2,
                            .routed_scale = 1};
constexpr Generation kV3 = {.architecture = "deepseek_v3",
                            .max_position = 4096,
                            .num_dense = 3,
                            .num_experts = 256,
                            .num_shared = 1,
                            .routed_scale = 2.5f};

// All but how experts are scored and grouped.
absl::StatusOr<MoeFfn> ReadMoe(const ConfigJson& config, const Generation& generation) {
  MoeFfn moe;
  SLUICE_ASSIGN_OR_RETURN(moe.activation.kind, ReadActivation(config, "hidden_act", "silu"));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts,
                          config.IntOr("n_routed_experts", 1, kMaxSize, generation.num_experts));
  SLUICE_ASSIGN_OR_RETURN(moe.expert_intermediate_size, config.GetInt("moe_intermediate_size", 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.routed_scale, config.FloatOr("routed_scaling_factor", generation.routed_scale));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_shared,
                          config.IntOr("n_shared_experts", 0, 1 << 10, generation.num_shared));
  if (num_shared > 0) moe.shared_intermediate_size = int32_t(num_shared * moe.expert_intermediate_size);
  SLUICE_ASSIGN_OR_RETURN(const int64_t frequency, config.IntOr("moe_layer_freq", 1, kMax, 1));
  if (frequency != 1) {
    return absl::UnimplementedError(
        absl::StrCat(config.name(), ": key 'moe_layer_freq' is ", frequency, ", which is not supported; expected 1"));
  }
  return moe;
}

absl::StatusOr<MoeGroups> ReadGroups(const ConfigJson& config, MoeGroupScore score) {
  MoeGroups groups{.score = score};
  SLUICE_ASSIGN_OR_RETURN(groups.num_groups, config.GetInt("n_group", 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(groups.num_kept, config.GetInt("topk_group", 1, kMaxSize));
  return groups;
}

absl::StatusOr<MoeFfn> ReadV2Moe(const ConfigJson& config) {
  // The weights are the bare softmax whatever the first says; the others are for grouped choice only.
  for (absl::string_view key : {"norm_topk_prob", "n_group", "topk_group"}) config.Ignore(key);
  SLUICE_RETURN_IF_ERROR(ExpectWord(config, "scoring_func", "softmax"));
  SLUICE_ASSIGN_OR_RETURN(MoeFfn moe, ReadMoe(config, kV2));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, config.GetInt("num_experts_per_tok", 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::string> method, config.FindString("topk_method"));
  if (method == "group_limited_greedy") {
    SLUICE_ASSIGN_OR_RETURN(moe.routing.groups, ReadGroups(config, MoeGroupScore::kMax));
  } else if (method.value_or("greedy") != "greedy") {
    return absl::UnimplementedError(absl::StrCat(config.name(), ": key 'topk_method' is ", Quote(*method),
                                                 ", expected greedy or group_limited_greedy"));
  }
  return moe;
}

absl::StatusOr<MoeFfn> ReadV3Moe(const ConfigJson& config) {
  SLUICE_RETURN_IF_ERROR(ExpectWord(config, "scoring_func", "sigmoid"));
  SLUICE_RETURN_IF_ERROR(ExpectWord(config, "topk_method", "noaux_tc"));
  SLUICE_ASSIGN_OR_RETURN(MoeFfn moe, ReadMoe(config, kV3));
  moe.routing.score = MoeScore::kSigmoid;
  moe.selection_bias = true;
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, config.IntOr("num_experts_per_tok", 1, kMaxSize, 8));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_groups, config.IntOr("n_group", 1, kMaxSize, 8));
  SLUICE_ASSIGN_OR_RETURN(const int64_t kept, config.IntOr("topk_group", 1, kMaxSize, 4));
  if (num_groups > 1) {
    moe.routing.groups = MoeGroups{int32_t(num_groups), int32_t(kept), MoeGroupScore::kTop2Sum};
  }
  SLUICE_ASSIGN_OR_RETURN(moe.routing.renormalize, config.BoolOr("norm_topk_prob", true));
  moe.routing.renormalize_eps = 1e-20f;
  return moe;
}

absl::StatusOr<ModelSpec> ReadConfig(const ConfigJson& config, const Generation& generation, const MoeFfn& moe,
                                     RopeLayout layout, bool mlp_bias) {
  ModelSpec spec;
  spec.architecture = std::string(generation.architecture);
  SLUICE_ASSIGN_OR_RETURN(spec.vocab_size, config.GetInt("vocab_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, config.GetInt("hidden_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, config.IntOr("max_position_embeddings", 1, kMax, generation.max_position));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_layers, config.GetInt("num_hidden_layers", 1, 1 << 16));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_dense,
                          config.IntOr("first_k_dense_replace", 0, kMax, generation.num_dense));
  SLUICE_ASSIGN_OR_RETURN(const float eps, config.FloatOr("rms_norm_eps", 1e-6f));
  SLUICE_ASSIGN_OR_RETURN(const Mla mla, ReadMla(config));
  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope, ReadRopeConfig(config, {.max_position = spec.max_position}));
  SLUICE_ASSIGN_OR_RETURN(const RopeSpec rotation, AddRope(config.name(), rope, mla.qk_rope_head_dim, layout, &spec));
  spec.final_norm = {.eps = eps};
  LayerSpec layer = MakeLayer(mla, rotation, rope.scaling, spec.final_norm);
  SLUICE_ASSIGN_OR_RETURN(const bool bias, config.BoolOr("attention_bias", false));
  // A query made in one piece has no bias in this family.
  layer.attention.q_bias = bias && mla.q_lora_rank.has_value();
  layer.attention.k_bias = layer.attention.o_bias = bias;
  DenseFfn dense{.activation = moe.activation, .bias = mlp_bias};
  SLUICE_ASSIGN_OR_RETURN(dense.intermediate_size, config.GetInt("intermediate_size", 1, kMax));
  SetLayers(layer, dense, moe, num_layers, num_dense, &spec);
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", false));
  return spec;
}

// ---------------------------------------------------------------- GGUF

absl::StatusOr<Mla> ReadMla(const GgufKeys& keys, int64_t num_layers) {
  Mla mla;
  SLUICE_ASSIGN_OR_RETURN(mla.num_heads, keys.SameInAllLayers("attention.head_count", num_layers));
  if (keys.Has("attention.q_lora_rank")) {
    SLUICE_ASSIGN_OR_RETURN(mla.q_lora_rank, keys.GetInt("attention.q_lora_rank", 1, kMaxSize));
  }
  SLUICE_ASSIGN_OR_RETURN(mla.kv_lora_rank, keys.GetInt("attention.kv_lora_rank", 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(mla.qk_rope_head_dim, keys.GetInt("rope.dimension_count", 2, 1 << 16));
  // Where a head's sizes have keys of their own, key_length and value_length are those of the latent.
  const std::string suffix = keys.Has("attention.key_length_mla") ? "_mla" : "";
  const std::string key_length = absl::StrCat("attention.key_length", suffix);
  SLUICE_ASSIGN_OR_RETURN(const int32_t key, keys.GetInt(key_length, 1, kMaxSize));
  SLUICE_ASSIGN_OR_RETURN(mla.v_head_dim, keys.GetInt(absl::StrCat("attention.value_length", suffix), 1, kMaxSize));
  mla.qk_nope_head_dim = key - mla.qk_rope_head_dim;
  if (mla.qk_nope_head_dim < 1) {
    return absl::InvalidArgumentError(absl::StrCat(keys.gguf().name(), ": key ", Quote(keys.Key(key_length)), " is ",
                                                   key, ", expected more than the ", mla.qk_rope_head_dim, " of ",
                                                   Quote(keys.Key("rope.dimension_count"))));
  }
  return mla;
}

absl::StatusOr<RopeConfig> ReadRope(const GgufKeys& keys, int32_t max_position) {
  SLUICE_ASSIGN_OR_RETURN(RopeConfig rope, ReadRopeConfig(keys, max_position));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> log_multiplier,
                          keys.FindPositive("rope.scaling.yarn_log_multiplier"));
  // 0.1 * mscale_all_dim; mscale is not stored, but the same in all models of these families.
  if (YarnRope* yarn = std::get_if<YarnRope>(&rope.scaling); yarn != nullptr && log_multiplier.has_value()) {
    yarn->mscale = yarn->mscale_all_dim = float(*log_multiplier / 0.1);
  }
  return rope;
}

absl::StatusOr<std::optional<MoeFfn>> ReadMoe(const GgufKeys& keys, int64_t num_layers, int64_t num_dense) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<MoeFfn> moe, ReadGgufMoe(keys, size_t(num_layers)));
  if (!moe.has_value()) return moe;
  SLUICE_ASSIGN_OR_RETURN(const int32_t gate, keys.IntOr("expert_gating_func", 0, kMax, 1));
  if (gate != 1 && gate != 2) {
    return keys.Unsupported("expert_gating_func",
                            absl::StrCat("is ", gate, ", which is not supported; expected 1 (softmax) or 2 (sigmoid)"));
  }
  MoeRouting& routing = moe->routing;
  routing.score = gate == 2 ? MoeScore::kSigmoid : MoeScore::kSoftmaxAll;
  SLUICE_ASSIGN_OR_RETURN(routing.renormalize, keys.BoolOr("expert_weights_norm", false));
  routing.renormalize_eps = 1e-20f;
  SLUICE_ASSIGN_OR_RETURN(routing.routed_scale, keys.PositiveOr("expert_weights_scale", 1));
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_groups, keys.IntOr("expert_group_count", 0, kMaxSize, 1));
  if (num_groups > 1) {
    routing.groups =
        MoeGroups{.num_groups = num_groups, .score = gate == 2 ? MoeGroupScore::kTop2Sum : MoeGroupScore::kMax};
    SLUICE_ASSIGN_OR_RETURN(routing.groups->num_kept, keys.GetInt("expert_group_used_count", 1, kMaxSize));
  }
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_shared, keys.IntOr("expert_shared_count", 0, 1 << 10, 0));
  if (moe->expert_intermediate_size > kMaxSize) {
    return keys.Unsupported("expert_feed_forward_length", absl::StrCat("is ", moe->expert_intermediate_size));
  }
  if (num_shared > 0) moe->shared_intermediate_size = num_shared * moe->expert_intermediate_size;
  moe->selection_bias = keys.HasTensor(absl::StrCat("blk.", num_dense, ".exp_probs_b.bias"));
  return moe;
}

}  // namespace

TensorNaming DeepseekFolderTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kFolderNames, HuggingFaceTensorNames());
  return {.names = names, .prefixes = HuggingFaceTensorNames().prefixes, .ignored = kFolderIgnored};
}
TensorNaming DeepseekGgufTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kGgufNames, GgufTensorNames());
  return {.names = names, .ignored = kGgufIgnored};
}

absl::StatusOr<ModelSpec> DeepseekV2FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const MoeFfn moe, ReadV2Moe(config));
  SLUICE_ASSIGN_OR_RETURN(const bool mlp_bias, config.BoolOr("mlp_bias", false));
  if (mlp_bias && moe.shared_intermediate_size.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(config.name(), ": key 'mlp_bias' is true: biases of shared experts are not supported"));
  }
  return ReadConfig(config, kV2, moe, RopeLayout::kInterleaved, mlp_bias);
}

absl::StatusOr<ModelSpec> DeepseekV3FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const MoeFfn moe, ReadV3Moe(config));
  SLUICE_ASSIGN_OR_RETURN(const bool interleaved, config.BoolOr("rope_interleave", true));
  return ReadConfig(config, kV3, moe, interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit, false);
}

absl::StatusOr<ModelSpec> DeepseekFromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "deepseek2");
  if (keys.Has("attention.temperature_scale")) {
    return keys.Unsupported("attention.temperature_scale", "is there, which DeepSeek and Kimi do without");
  }
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufSizes(keys));
  // The last of the layers counted may be there for multi-token prediction only.
  const int32_t num_all = int32_t(spec.layers.size());
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_ahead, keys.IntOr("nextn_predict_layers", 0, num_all - 1, 0));
  const int32_t num_layers = num_all - num_ahead;
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_dense, keys.IntOr("leading_dense_block_count", 0, num_all, 0));
  SLUICE_ASSIGN_OR_RETURN(const float eps, keys.GetPositive("attention.layer_norm_rms_epsilon"));
  SLUICE_ASSIGN_OR_RETURN(const Mla mla, ReadMla(keys, num_all));
  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope, ReadRope(keys, spec.max_position));
  SLUICE_ASSIGN_OR_RETURN(const RopeSpec rotation,
                          AddRope(keys, rope, mla.qk_rope_head_dim, RopeLayout::kInterleaved, &spec));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<MoeFfn> moe, ReadMoe(keys, num_all, num_dense));
  DenseFfn dense;
  SLUICE_ASSIGN_OR_RETURN(dense.intermediate_size, keys.SameInAllLayers("feed_forward_length", num_all));
  spec.final_norm = {.eps = eps};
  LayerSpec layer = MakeLayer(mla, rotation, rope.scaling, spec.final_norm);
  layer.attention.q_bias = keys.HasTensor("blk.0.attn_q_a.bias");
  layer.attention.k_bias = keys.HasTensor("blk.0.attn_kv_a_mqa.bias");
  layer.attention.o_bias = keys.HasTensor("blk.0.attn_output.bias");
  SetLayers(layer, dense, moe, num_layers, num_dense, &spec);
  return spec;
}

}  // namespace sluice
