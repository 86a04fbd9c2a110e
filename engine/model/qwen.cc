// Qwen2 and 2.5 (arXiv:2407.10671, 2412.15115): Llama with biases on q, k and v. Qwen3 (arXiv:2505.09388): no biases,
// but a norm of each head of q and k; and its form with a mixture of experts.
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"

namespace sluice {
namespace {

constexpr int64_t kMax = INT32_MAX;

// `sliding_window`, 4096 where the key is missing; nothing unless `use_sliding_window`.
absl::StatusOr<std::optional<int64_t>> ReadWindow(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const bool use, config.BoolOr("use_sliding_window", false));
  SLUICE_ASSIGN_OR_RETURN(std::optional<int64_t> window, config.FindInt("sliding_window", 1, kMax));
  if (!use) return std::optional<int64_t>();
  if (!window.has_value() && !config.IsNull("sliding_window")) window = 4096;
  return window;
}

// Layers from max_window_layers on slide, unless `layer_types` says which do.
absl::Status ReadWindows(const ConfigJson& config, ModelSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> window, ReadWindow(config));
  SLUICE_ASSIGN_OR_RETURN(const int64_t first, config.IntOr("max_window_layers", 0, kMax, 28));
  std::vector<bool> slides(spec->layers.size());
  for (size_t i = 0; i < slides.size(); ++i) slides[i] = window.has_value() && int64_t(i) >= first;
  return SetSlidingLayers(config, window, slides, spec);
}

void NormHeads(ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    std::get<Gqa>(layer.attention.kind).qk_norm = {.kind = QkNormKind::kPerHead, .norm = spec->final_norm};
  }
}

// Which layers have experts: every decoder_sparse_step-th, but none of mlp_only_layers.
absl::StatusOr<std::vector<bool>> ReadMoeLayers(const ConfigJson& config, size_t num_layers) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t step, config.IntOr("decoder_sparse_step", 1, kMax, 1));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> dense, config.FindInts("mlp_only_layers", 0, kMax));
  std::vector<bool> has_experts(num_layers);
  for (size_t i = 0; i < num_layers; ++i) {
    const bool listed = dense.has_value() && std::count(dense->begin(), dense->end(), int64_t(i)) != 0;
    has_experts[i] = int64_t(i + 1) % step == 0 && !listed;
  }
  return has_experts;
}

}  // namespace

absl::StatusOr<ModelSpec> Qwen2FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(
      ModelSpec spec, ReadDecoderConfig(config, {.architecture = "qwen2", .max_position = 32768, .num_kv_heads = 32}));
  SLUICE_RETURN_IF_ERROR(ReadWindows(config, &spec));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.q_bias = layer.attention.k_bias = layer.attention.v_bias = true;
  }
  return spec;
}

absl::StatusOr<ModelSpec> Qwen3FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(
      ModelSpec spec,
      ReadDecoderConfig(config, {.architecture = "qwen3", .max_position = 32768, .num_kv_heads = 32, .head_dim = 128}));
  SLUICE_RETURN_IF_ERROR(ReadWindows(config, &spec));
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, false, &spec));
  NormHeads(&spec);
  return spec;
}

absl::StatusOr<ModelSpec> Qwen3MoeFromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(
      ModelSpec spec,
      ReadDecoderConfig(config, {.architecture = "qwen3_moe", .max_position = 32768, .num_kv_heads = 4}));
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, false, &spec));
  NormHeads(&spec);
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> window, ReadWindow(config));
  config.Ignore("max_window_layers");  // if one layer of this family slides, all do
  MoeFfn moe;
  // Later versions write the number of experts under another name.
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_experts, config.IntOr("num_experts", 0, kMax, 128));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts, config.IntOr("num_local_experts", 0, kMax, num_experts));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, config.IntOr("num_experts_per_tok", 1, kMax, 8));
  SLUICE_ASSIGN_OR_RETURN(moe.expert_intermediate_size, config.IntOr("moe_intermediate_size", 1, kMax, 768));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.renormalize, config.BoolOr("norm_topk_prob", false));
  moe.activation = std::get<DenseFfn>(spec.layers[0].ffn).activation;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<bool> has_experts, ReadMoeLayers(config, spec.layers.size()));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (window.has_value()) spec.layers[i].attention.mask = {MaskKind::kWindow, int32_t(*window)};
    if (has_experts[i] && moe.routing.num_experts > 0) spec.layers[i].ffn = moe;
  }
  return spec;
}

absl::StatusOr<ModelSpec> Qwen2FromGguf(const Gguf& gguf) {
  return ReadGgufDecoder(GgufKeys(gguf, "qwen2"), RopeLayout::kHalfSplit);
}

absl::StatusOr<ModelSpec> Qwen3FromGguf(const Gguf& gguf) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(GgufKeys(gguf, "qwen3"), RopeLayout::kHalfSplit));
  NormHeads(&spec);
  return spec;
}

absl::StatusOr<ModelSpec> Qwen3MoeFromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "qwen3moe");
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(keys, RopeLayout::kHalfSplit));
  NormHeads(&spec);
  SLUICE_ASSIGN_OR_RETURN(std::optional<MoeFfn> moe, ReadGgufMoe(keys, spec.layers.size()));
  if (!moe.has_value()) return spec;
  moe->routing.renormalize = true;  // has no key; all published models of the family do
  for (LayerSpec& layer : spec.layers) layer.ffn = *moe;
  return spec;
}

}  // namespace sluice
