// Llama 1 to 3 and the models built the same way (SmolLM2; Mistral and Mixtral as GGUF): RMS norms before attention and
// FFN, grouped-query attention with RoPE, a gated SiLU FFN. Touvron et al. 2023, arXiv:2302.13971.
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"

namespace sluice {

absl::StatusOr<ModelSpec> LlamaFromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "llama");
  // Converters of this architecture permute the rows of q and k so that the two halves of a pair are neighbours.
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(keys, RopeLayout::kInterleaved));
  SLUICE_ASSIGN_OR_RETURN(const int32_t window, keys.IntOr("attention.sliding_window", 0, INT32_MAX, 0));
  SLUICE_ASSIGN_OR_RETURN(std::optional<MoeFfn> moe, ReadGgufMoe(keys, spec.layers.size()));
  if (moe.has_value()) moe->routing.renormalize = true;
  for (LayerSpec& layer : spec.layers) {
    if (window > 0) layer.attention.mask = {MaskKind::kWindow, window};
    if (moe.has_value()) layer.ffn = *moe;
  }
  return spec;
}

absl::StatusOr<ModelSpec> LlamaFromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadDecoderConfig(config, {.architecture = "llama"}));
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, false, &spec));
  config.Ignore("rope_interleaved");  // written by the authors of SmolLM2, read by nobody
  SLUICE_ASSIGN_OR_RETURN(const bool mlp_bias, config.BoolOr("mlp_bias", false));
  for (LayerSpec& layer : spec.layers) std::get<DenseFfn>(layer.ffn).bias = mlp_bias;
  return spec;
}

}  // namespace sluice
