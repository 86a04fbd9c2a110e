// SmolLM3 (Hugging Face 2025): Llama with layers that have no RoPE, every fourth one unless told otherwise.
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"

namespace sluice {
namespace {

constexpr int64_t kMax = INT32_MAX;

// `no_rope_layers`: one number per layer, 0 where it has no RoPE. Without a list every no_rope_layer_interval-th.
absl::StatusOr<std::vector<bool>> ReadRopeLayers(const ConfigJson& config, size_t num_layers) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t interval, config.IntOr("no_rope_layer_interval", 1, kMax, 4));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> list, config.FindInts("no_rope_layers", 0, 1));
  if (list.has_value() && list->size() != num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'no_rope_layers' has ", list->size(),
                                                   " entries, expected one for each of the ", num_layers, " layers"));
  }
  std::vector<bool> has_rope(num_layers);
  for (size_t i = 0; i < num_layers; ++i) {
    has_rope[i] = list.has_value() ? (*list)[i] != 0 : int64_t(i + 1) % interval != 0;
  }
  return has_rope;
}

}  // namespace

absl::StatusOr<ModelSpec> SmolLm3FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadDecoderConfig(config, {.architecture = "smollm3",
                                                                     .max_position = 32768,
                                                                     .num_kv_heads = 4,
                                                                     .rope_theta = 2e6f,
                                                                     .tied_embeddings = true}));
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, false, &spec));
  SLUICE_ASSIGN_OR_RETURN(const bool mlp_bias, config.BoolOr("mlp_bias", false));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<bool> has_rope, ReadRopeLayers(config, spec.layers.size()));
  SLUICE_ASSIGN_OR_RETURN(const bool use_window, config.BoolOr("use_sliding_window", false));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> window, config.FindInt("sliding_window", 1, kMax));
  config.Ignore("max_window_layers");
  std::vector<bool> slides(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    if (!has_rope[i]) layer.attention.rope.reset();
    std::get<DenseFfn>(layer.ffn).bias = mlp_bias;
    slides[i] = use_window && window.has_value() && !has_rope[i];
  }
  SLUICE_RETURN_IF_ERROR(SetSlidingLayers(config, window, slides, &spec));
  return spec;
}

absl::StatusOr<ModelSpec> SmolLm3FromGguf(const Gguf& gguf) {
  // Rows of q and k are permuted as for llama. Which layers have RoPE is not in the file.
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(GgufKeys(gguf, "smollm3"), RopeLayout::kInterleaved));
  for (size_t i = 3; i < spec.layers.size(); i += 4) spec.layers[i].attention.rope.reset();
  return spec;
}

}  // namespace sluice
