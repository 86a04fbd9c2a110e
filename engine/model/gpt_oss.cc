// gpt-oss (OpenAI 2025, arXiv:2508.10925): a learned sink per head in the softmax, every other layer with a window of
// 128, biases in attention, router and experts, a clamped gate, YaRN whose ramp is not cut to whole pairs, and experts
// in MXFP4.
#include <optional>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"
#include "engine/model/rope.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr int64_t kMax = INT32_MAX;
constexpr int64_t kMaxSize = 1 << 20;

constexpr TensorForm kMxfp4 = {.encoding = TensorEncoding::kMxfp4Blocks};
constexpr TensorForm kMxfp4InTurn = {.rows = TensorRows::kInterleaved, .encoding = TensorEncoding::kMxfp4Blocks};
constexpr TensorForm kTransposed = {.transposed = true};
constexpr TensorForm kTransposedInTurn = {.rows = TensorRows::kInterleaved, .transposed = true};
constexpr TensorForm kInTurn = {.rows = TensorRows::kInterleaved};

constexpr TensorName kFolderNames[] = {
    {kSinks, "{model}layers.{layer}.self_attn.sinks"},
    {kRouter, "{model}layers.{layer}.mlp.router.weight"},
    {kRouterBias, "{model}layers.{layer}.mlp.router.bias"},
    // Gate and up take turns, row by row; where they are not MXFP4 they are stored [in, out].
    {kExpertGate, "{model}layers.{layer}.mlp.experts.gate_up_proj_blocks", kMxfp4InTurn},
    {kExpertUp, "{model}layers.{layer}.mlp.experts.gate_up_proj_blocks", kMxfp4InTurn},
    {kExpertDown, "{model}layers.{layer}.mlp.experts.down_proj_blocks", kMxfp4},
    {kExpertGate, "{model}layers.{layer}.mlp.experts.gate_up_proj", kTransposedInTurn},
    {kExpertUp, "{model}layers.{layer}.mlp.experts.gate_up_proj", kTransposedInTurn},
    {kExpertDown, "{model}layers.{layer}.mlp.experts.down_proj", kTransposed},
    {kExpertGateBias, "{model}layers.{layer}.mlp.experts.gate_up_proj_bias", kInTurn},
    {kExpertUpBias, "{model}layers.{layer}.mlp.experts.gate_up_proj_bias", kInTurn},
    {kExpertDownBias, "{model}layers.{layer}.mlp.experts.down_proj_bias"},
};

constexpr TensorName kGgufNames[] = {
    // Named for where it stands, not for what it normalises: this is the norm before the experts.
    {kPreFfnNorm, "blk.{layer}.post_attention_norm.weight"}, {kSinks, "blk.{layer}.attn_sinks.weight"},
    {kRouterBias, "blk.{layer}.ffn_gate_inp.bias"},          {kExpertGateBias, "blk.{layer}.ffn_gate_exps.bias"},
    {kExpertUpBias, "blk.{layer}.ffn_up_exps.bias"},         {kExpertDownBias, "blk.{layer}.ffn_down_exps.bias"},
};

// The family's context before it was stretched, and how much.
constexpr YarnRope kYarn = {.factor = 32, .original_max_position = 4096, .truncate = false};

// What no file says: the choice among experts and where there are biases.
void FillIn(MoeFfn* moe) {
  moe->routing.score = MoeScore::kSoftmaxTopK;
  moe->activation.kind = ActivationKind::kSwigluOai;
  moe->router_bias = moe->expert_bias = true;
}

void SetExperts(const MoeFfn& moe, ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    layer.ffn = moe;
    layer.attention.sinks = true;
  }
}

}  // namespace

TensorNaming GptOssFolderTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kFolderNames, HuggingFaceDenseTensorNames());
  return {.names = names, .prefixes = HuggingFaceDenseTensorNames().prefixes};
}
TensorNaming GptOssGgufTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kGgufNames, GgufTensorNames());
  return {.names = names};
}

absl::StatusOr<ModelSpec> GptOssFromConfig(const ConfigJson& config) {
  const DecoderDefaults defaults{.architecture = "gpt_oss",
                                 .max_position = 131072,
                                 .num_kv_heads = 8,
                                 .head_dim = 64,
                                 .rms_norm_eps = 1e-5f,
                                 .rope_theta = 150000};
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadDecoderConfig(config, defaults));
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, true, &spec));
  config.Ignore("experts_per_token");       // num_experts_per_tok once more
  config.Ignore("initial_context_length");  // as what the scaling of RoPE says
  SLUICE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> parameters, config.FindObject("rope_parameters"));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> scaling, config.FindObject("rope_scaling"));
  if (!parameters.has_value() && (!scaling.has_value() || scaling->empty())) {
    SLUICE_ASSIGN_OR_RETURN(const float theta, config.FloatOr("rope_theta", defaults.rope_theta));
    const int32_t num_rotary = spec.layers[0].attention.rope->num_rotary;
    spec.rope_tables[0] = MakeRopeTable(theta, num_rotary, kYarn);
  }

  std::optional<int64_t> window = 128;
  if (config.Has("sliding_window")) {
    SLUICE_ASSIGN_OR_RETURN(window, config.FindInt("sliding_window", 1, kMax));
  }
  std::vector<bool> every_other;
  for (size_t i = 0; i < spec.layers.size(); ++i) every_other.push_back(i % 2 == 0);
  SLUICE_RETURN_IF_ERROR(SetSlidingLayers(config, window, every_other, &spec));

  MoeFfn moe;
  FillIn(&moe);
  moe.expert_intermediate_size = std::get<DenseFfn>(spec.layers[0].ffn).intermediate_size;
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts, config.IntOr("num_local_experts", 1, kMaxSize, 128));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, config.IntOr("num_experts_per_tok", 1, kMaxSize, 4));
  SLUICE_ASSIGN_OR_RETURN(moe.activation.alpha, config.FloatOr("swiglu_alpha", 1.702f));
  SLUICE_ASSIGN_OR_RETURN(moe.activation.limit, config.FloatOr("swiglu_limit", 7));
  SetExperts(moe, &spec);
  return spec;
}

absl::StatusOr<ModelSpec> GptOssFromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "gpt-oss");
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(keys, RopeLayout::kHalfSplit));
  SLUICE_ASSIGN_OR_RETURN(const int32_t context, keys.GetInt("context_length", 1, INT32_MAX));
  SLUICE_ASSIGN_OR_RETURN(RopeConfig rope, ReadRopeConfig(keys, context));
  if (YarnRope* yarn = std::get_if<YarnRope>(&rope.scaling)) {
    yarn->truncate = false;  // there is no key for it
    spec.rope_tables[0] = MakeRopeTable(rope.theta, spec.layers[0].attention.rope->num_rotary, rope.scaling);
  }
  SLUICE_ASSIGN_OR_RETURN(const int32_t window, keys.GetInt("attention.sliding_window", 1, kMax));
  SLUICE_RETURN_IF_ERROR(SetMasksByPattern(keys, {MaskKind::kWindow, window}, 2, &spec));
  SLUICE_ASSIGN_OR_RETURN(std::optional<MoeFfn> moe, ReadGgufMoe(keys, spec.layers.size()));
  if (!moe.has_value()) return keys.Unsupported("expert_count", "is 0, but all models of the family have experts");
  FillIn(&*moe);
  SetExperts(*moe, &spec);
  return spec;
}

}  // namespace sluice
