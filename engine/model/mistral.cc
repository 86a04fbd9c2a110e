// Mistral 7B and its like (Jiang et al. 2023, arXiv:2310.06825): Llama with a window in all layers or none; and Mixtral
// (arXiv:2401.04088), the same with a mixture of experts. As GGUF both are files of architecture llama.
#include <optional>

#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr int64_t kMax = INT32_MAX;

constexpr TensorForm kStacked{.rows = TensorRows::kStacked};

// The mixture as published, and as later versions of transformers keep it.
constexpr TensorName kMixtralNames[] = {
    {kRouter, "{model}layers.{layer}.block_sparse_moe.gate.weight"},
    {kRouter, "{model}layers.{layer}.mlp.gate.weight"},
    {kExpertGate, "{model}layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"},
    {kExpertUp, "{model}layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
    {kExpertDown, "{model}layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"},
    {kExpertGate, "{model}layers.{layer}.mlp.experts.gate_up_proj", kStacked},
    {kExpertUp, "{model}layers.{layer}.mlp.experts.gate_up_proj", kStacked},
    {kExpertDown, "{model}layers.{layer}.mlp.experts.down_proj"},
};

// `sliding_window` in all layers; null means none whatever the default.
absl::Status ReadWindow(const ConfigJson& config, std::optional<int64_t> otherwise, ModelSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<int64_t> window, config.FindInt("sliding_window", 1, kMax));
  if (!window.has_value() && !config.IsNull("sliding_window")) window = otherwise;
  if (!window.has_value()) return absl::OkStatus();
  for (LayerSpec& layer : spec->layers) layer.attention.mask = {MaskKind::kWindow, int32_t(*window)};
  return absl::OkStatus();
}

}  // namespace

TensorNaming MixtralFolderTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kMixtralNames, HuggingFaceDenseTensorNames());
  TensorNaming naming = HuggingFaceDenseTensorNames();
  naming.names = names;
  return naming;
}

absl::StatusOr<ModelSpec> MistralFromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(
      ModelSpec spec,
      ReadDecoderConfig(config, {.architecture = "mistral", .max_position = 4096 * 32, .num_kv_heads = 8}));
  SLUICE_RETURN_IF_ERROR(ReadWindow(config, 4096, &spec));
  return spec;
}

absl::StatusOr<ModelSpec> MixtralFromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadDecoderConfig(config, {.architecture = "mixtral",
                                                                     .max_position = 4096 * 32,
                                                                     .num_kv_heads = 8,
                                                                     .rms_norm_eps = 1e-5f,
                                                                     .rope_theta = 1e6f}));
  SLUICE_RETURN_IF_ERROR(ReadWindow(config, std::nullopt, &spec));
  MoeFfn moe;
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts, config.IntOr("num_local_experts", 1, kMax, 8));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, config.IntOr("num_experts_per_tok", 1, kMax, 2));
  moe.routing.renormalize = true;
  for (LayerSpec& layer : spec.layers) {
    const DenseFfn& expert = std::get<DenseFfn>(layer.ffn);
    moe.expert_intermediate_size = expert.intermediate_size;
    moe.activation = expert.activation;
    layer.ffn = moe;
  }
  return spec;
}

}  // namespace sluice
