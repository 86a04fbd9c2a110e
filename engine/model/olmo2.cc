// OLMo 2 (arXiv:2501.00656): norms after attention and FFN instead of before, and a norm over the whole width of q and
// k.
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr TensorName kFolderNames[] = {
    {kPostAttnNorm, "{model}layers.{layer}.post_attention_layernorm.weight"},
    {kPostFfnNorm, "{model}layers.{layer}.post_feedforward_layernorm.weight"},
};

void NormAfterwards(ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    layer.pre_attn = layer.pre_ffn = std::nullopt;
    layer.post_attn = layer.post_ffn = spec->final_norm;
    std::get<Gqa>(layer.attention.kind).qk_norm = {.kind = QkNormKind::kFullWidth, .norm = spec->final_norm};
  }
}

}  // namespace

TensorNaming Olmo2FolderTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kFolderNames, HuggingFaceDenseTensorNames());
  TensorNaming naming = HuggingFaceDenseTensorNames();
  naming.names = names;
  return naming;
}

absl::StatusOr<ModelSpec> Olmo2FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadDecoderConfig(config, {.architecture = "olmo2", .rms_norm_eps = 1e-5f}));
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, false, &spec));
  NormAfterwards(&spec);
  return spec;
}

absl::StatusOr<ModelSpec> Olmo2FromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "olmo2");
  SLUICE_ASSIGN_OR_RETURN(const int32_t window, keys.IntOr("attention.sliding_window", 0, INT32_MAX, 0));
  if (window > 0) {
    return keys.Unsupported("attention.sliding_window", "is set: this is an OLMo 3 model, which is not supported");
  }
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(keys, RopeLayout::kHalfSplit));
  NormAfterwards(&spec);
  return spec;
}

}  // namespace sluice
