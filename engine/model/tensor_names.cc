#include "absl/algorithm/container.h"
#include "engine/model/architectures.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr TensorForm kStacked{.rows = TensorRows::kStacked};

// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Standardized tensor names"
constexpr TensorName kGguf[] = {
    {kTokenEmbedding, "token_embd.weight"},
    {kFinalNorm, "output_norm.weight"},
    {kOutputHead, "output.weight"},
    {kPreAttnNorm, "blk.{layer}.attn_norm.weight"},
    {kPreFfnNorm, "blk.{layer}.ffn_norm.weight"},
    {kQ, "blk.{layer}.attn_q.weight"},
    {kK, "blk.{layer}.attn_k.weight"},
    {kV, "blk.{layer}.attn_v.weight"},
    {kO, "blk.{layer}.attn_output.weight"},
    {kQBias, "blk.{layer}.attn_q.bias"},
    {kKBias, "blk.{layer}.attn_k.bias"},
    {kVBias, "blk.{layer}.attn_v.bias"},
    {kOBias, "blk.{layer}.attn_output.bias"},
    {kQNorm, "blk.{layer}.attn_q_norm.weight"},
    {kKNorm, "blk.{layer}.attn_k_norm.weight"},
    {kPostAttnNorm, "blk.{layer}.post_attention_norm.weight"},
    {kPostFfnNorm, "blk.{layer}.post_ffw_norm.weight"},
    {kGate, "blk.{layer}.ffn_gate.weight"},
    {kUp, "blk.{layer}.ffn_up.weight"},
    {kDown, "blk.{layer}.ffn_down.weight"},
    {kGateBias, "blk.{layer}.ffn_gate.bias"},
    {kUpBias, "blk.{layer}.ffn_up.bias"},
    {kDownBias, "blk.{layer}.ffn_down.bias"},
    {kRouter, "blk.{layer}.ffn_gate_inp.weight"},
    {kExpertGate, "blk.{layer}.ffn_gate_exps.weight"},
    {kExpertUp, "blk.{layer}.ffn_up_exps.weight"},
    {kExpertDown, "blk.{layer}.ffn_down_exps.weight"},
    {kSharedGate, "blk.{layer}.ffn_gate_shexp.weight"},
    {kSharedUp, "blk.{layer}.ffn_up_shexp.weight"},
    {kSharedDown, "blk.{layer}.ffn_down_shexp.weight"},
    // Other forms: gate and up in one, and, in old files, a tensor for each expert.
    {kExpertGate, "blk.{layer}.ffn_gate_up_exps.weight", kStacked},
    {kExpertUp, "blk.{layer}.ffn_gate_up_exps.weight", kStacked},
    {kExpertGate, "blk.{layer}.ffn_gate.{expert}.weight"},
    {kExpertUp, "blk.{layer}.ffn_up.{expert}.weight"},
    {kExpertDown, "blk.{layer}.ffn_down.{expert}.weight"},
};

constexpr TensorName kHuggingFaceDense[] = {
    {kTokenEmbedding, "{model}embed_tokens.weight"},
    {kFinalNorm, "{model}norm.weight"},
    {kOutputHead, "lm_head.weight"},
    {kPreAttnNorm, "{model}layers.{layer}.input_layernorm.weight"},
    // Named for where it stands, not for what it normalises: this is the norm before the FFN.
    {kPreFfnNorm, "{model}layers.{layer}.post_attention_layernorm.weight"},
    {kQ, "{model}layers.{layer}.self_attn.q_proj.weight"},
    {kK, "{model}layers.{layer}.self_attn.k_proj.weight"},
    {kV, "{model}layers.{layer}.self_attn.v_proj.weight"},
    {kO, "{model}layers.{layer}.self_attn.o_proj.weight"},
    {kQBias, "{model}layers.{layer}.self_attn.q_proj.bias"},
    {kKBias, "{model}layers.{layer}.self_attn.k_proj.bias"},
    {kVBias, "{model}layers.{layer}.self_attn.v_proj.bias"},
    {kOBias, "{model}layers.{layer}.self_attn.o_proj.bias"},
    {kQNorm, "{model}layers.{layer}.self_attn.q_norm.weight"},
    {kKNorm, "{model}layers.{layer}.self_attn.k_norm.weight"},
    {kGate, "{model}layers.{layer}.mlp.gate_proj.weight"},
    {kUp, "{model}layers.{layer}.mlp.up_proj.weight"},
    {kDown, "{model}layers.{layer}.mlp.down_proj.weight"},
    {kGateBias, "{model}layers.{layer}.mlp.gate_proj.bias"},
    {kUpBias, "{model}layers.{layer}.mlp.up_proj.bias"},
    {kDownBias, "{model}layers.{layer}.mlp.down_proj.bias"},
};

constexpr TensorName kHuggingFaceExperts[] = {
    {kRouter, "{model}layers.{layer}.mlp.gate.weight"},
    {kExpertGate, "{model}layers.{layer}.mlp.experts.{expert}.gate_proj.weight"},
    {kExpertUp, "{model}layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
    {kExpertDown, "{model}layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    // As transformers 5 keeps them.
    {kExpertGate, "{model}layers.{layer}.mlp.experts.gate_up_proj", kStacked},
    {kExpertUp, "{model}layers.{layer}.mlp.experts.gate_up_proj", kStacked},
    {kExpertDown, "{model}layers.{layer}.mlp.experts.down_proj"},
};

// The divisors of the RoPE frequencies are already in the spec's tables.
constexpr absl::string_view kGgufIgnored[] = {"rope_freqs.weight"};

constexpr absl::string_view kHuggingFacePrefixes[] = {"model."};
constexpr absl::string_view kHuggingFaceIgnored[] = {"*.rotary_emb.inv_freq"};

}  // namespace

TensorNaming GgufTensorNames() { return {.names = kGguf, .ignored = kGgufIgnored}; }

TensorNaming HuggingFaceDenseTensorNames() {
  return {.names = kHuggingFaceDense, .prefixes = kHuggingFacePrefixes, .ignored = kHuggingFaceIgnored};
}

TensorNaming HuggingFaceTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kHuggingFaceExperts, HuggingFaceDenseTensorNames());
  return {.names = names, .prefixes = kHuggingFacePrefixes, .ignored = kHuggingFaceIgnored};
}

std::vector<TensorName> ExtendNames(absl::Span<const TensorName> own, const TensorNaming& shared) {
  std::vector<TensorName> names(own.begin(), own.end());
  for (const TensorName& name : shared.names) {
    const bool mentioned = absl::c_any_of(
        own, [&](const TensorName& mine) { return mine.role == name.role || mine.pattern == name.pattern; });
    if (!mentioned) names.push_back(name);
  }
  return names;
}

}  // namespace sluice
