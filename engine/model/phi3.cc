// Phi-3, 3.5 and 4 (arXiv:2404.14219): Llama with q|k|v and gate|up in one matrix each, a window in all layers or none,
// and longrope, on part of the head in some.
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr int64_t kMax = INT32_MAX;

constexpr TensorForm kStacked{.rows = TensorRows::kStacked};

constexpr TensorName kFolderNames[] = {
    {kQ, "{model}layers.{layer}.self_attn.qkv_proj.weight", kStacked},
    {kK, "{model}layers.{layer}.self_attn.qkv_proj.weight", kStacked},
    {kV, "{model}layers.{layer}.self_attn.qkv_proj.weight", kStacked},
    {kGate, "{model}layers.{layer}.mlp.gate_up_proj.weight", kStacked},
    {kUp, "{model}layers.{layer}.mlp.gate_up_proj.weight", kStacked},
};

constexpr TensorName kGgufNames[] = {
    {kQ, "blk.{layer}.attn_qkv.weight", kStacked},
    {kK, "blk.{layer}.attn_qkv.weight", kStacked},
    {kV, "blk.{layer}.attn_qkv.weight", kStacked},
    {kQ, "blk.{layer}.attn_q.weight"},
    {kK, "blk.{layer}.attn_k.weight"},
    {kV, "blk.{layer}.attn_v.weight"},
    {kGate, "blk.{layer}.ffn_up.weight", kStacked},
    {kUp, "blk.{layer}.ffn_up.weight", kStacked},
};

// The divisors of the RoPE frequencies are already in the spec's tables.
constexpr absl::string_view kGgufIgnored[] = {"rope_factors_long.weight", "rope_factors_short.weight"};

void SlideAll(int64_t window, ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) layer.attention.mask = {MaskKind::kWindow, int32_t(window)};
}

}  // namespace

TensorNaming Phi3FolderTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kFolderNames, HuggingFaceDenseTensorNames());
  TensorNaming naming = HuggingFaceDenseTensorNames();
  naming.names = names;
  return naming;
}
TensorNaming Phi3GgufTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kGgufNames, GgufTensorNames());
  return {.names = names, .ignored = kGgufIgnored};
}

absl::StatusOr<ModelSpec> Phi3FromConfig(const ConfigJson& config) {
  const DecoderDefaults defaults{
      .architecture = "phi3", .max_position = 4096, .rms_norm_eps = 1e-5f, .original_max_position = 4096};
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadDecoderConfig(config, defaults));
  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope, ReadRopeConfig(config, {.max_position = spec.max_position}));
  if (!std::holds_alternative<std::monostate>(rope.scaling) && !std::holds_alternative<LongRope>(rope.scaling)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.name(), ": RoPE is scaled in another way than longrope, which this family does not know"));
  }
  SLUICE_ASSIGN_OR_RETURN(const bool bias, config.BoolOr("attention_bias", false));
  if (bias) {
    return absl::UnimplementedError(
        absl::StrCat(config.name(), ": key 'attention_bias' is true, which is not supported for this family"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> window, config.FindInt("sliding_window", 1, kMax));
  if (window.has_value()) SlideAll(*window, &spec);
  return spec;
}

absl::StatusOr<ModelSpec> Phi3FromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "phi3");
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(keys, RopeLayout::kHalfSplit));
  // The FFN's two matrices are one tensor without biases; 0 is how converters write "no window".
  for (LayerSpec& layer : spec.layers) std::get<DenseFfn>(layer.ffn).bias = false;
  SLUICE_ASSIGN_OR_RETURN(const int32_t window, keys.IntOr("attention.sliding_window", 0, INT32_MAX, 0));
  if (window > 0) SlideAll(window, &spec);
  return spec;
}

}  // namespace sluice
