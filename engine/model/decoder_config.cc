#include "engine/model/decoder_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

constexpr int64_t kMax = INT32_MAX;

absl::StatusOr<Gqa> ReadHeads(const ConfigJson& config, const DecoderDefaults& defaults, int32_t d_model) {
  Gqa gqa;
  SLUICE_ASSIGN_OR_RETURN(gqa.num_heads, config.GetInt("num_attention_heads", 1, kMax));
  const int32_t num_kv_heads =
      config.IsNull("num_key_value_heads") ? gqa.num_heads : defaults.num_kv_heads.value_or(gqa.num_heads);
  SLUICE_ASSIGN_OR_RETURN(gqa.num_kv_heads, config.IntOr("num_key_value_heads", 1, kMax, num_kv_heads));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> head_dim, config.FindInt("head_dim", 1, kMax));
  if (!head_dim.has_value() && !defaults.head_dim.has_value() && d_model % gqa.num_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'hidden_size' is ", d_model,
                                                   ", expected a multiple of 'num_attention_heads' ", gqa.num_heads,
                                                   " where 'head_dim' is missing"));
  }
  gqa.head_dim = int32_t(head_dim.value_or(defaults.head_dim.value_or(d_model / gqa.num_heads)));
  gqa.value_head_dim = gqa.head_dim;
  return gqa;
}

}  // namespace

absl::StatusOr<ActivationKind> ReadActivation(const ConfigJson& config, absl::string_view key,
                                              absl::string_view otherwise) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::string> found, config.FindString(key));
  const std::string name = found.value_or(std::string(otherwise));
  if (name == "silu" || name == "swish") return ActivationKind::kSilu;
  if (name == "gelu") return ActivationKind::kGeluErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return ActivationKind::kGeluTanh;
  return absl::UnimplementedError(
      absl::StrCat(config.name(), ": key ", Quote(key), " is ", Quote(name),
                   ", which is not supported; expected silu, gelu, gelu_new or gelu_pytorch_tanh"));
}

absl::StatusOr<ModelSpec> ReadDecoderConfig(const ConfigJson& config, const DecoderDefaults& defaults) {
  ModelSpec spec;
  spec.architecture = std::string(defaults.architecture);
  SLUICE_ASSIGN_OR_RETURN(spec.vocab_size, config.GetInt("vocab_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, config.GetInt("hidden_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, config.IntOr("max_position_embeddings", 1, kMax, defaults.max_position));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_layers, config.GetInt("num_hidden_layers", 1, 1 << 16));
  DenseFfn ffn;
  SLUICE_ASSIGN_OR_RETURN(ffn.intermediate_size, config.GetInt("intermediate_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(ffn.activation.kind, ReadActivation(config, defaults.activation_key, defaults.activation));
  SLUICE_ASSIGN_OR_RETURN(const float eps, config.FloatOr("rms_norm_eps", defaults.rms_norm_eps));
  SLUICE_ASSIGN_OR_RETURN(const Gqa gqa, ReadHeads(config, defaults, spec.d_model));
  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope,
                          ReadRopeConfig(config, {.theta = defaults.rope_theta,
                                                  .max_position = spec.max_position,
                                                  .original_max_position = defaults.original_max_position}));
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", defaults.tied_embeddings));
  LayerSpec layer;
  layer.pre_attn = layer.pre_ffn = spec.final_norm = NormParams{.eps = eps};
  layer.attention.kind = gqa;
  layer.attention.scale = 1 / std::sqrt(float(gqa.head_dim));
  SLUICE_ASSIGN_OR_RETURN(layer.attention.rope,
                          AddRope(config.name(), rope, gqa.head_dim, RopeLayout::kHalfSplit, &spec));
  layer.ffn = ffn;
  spec.layers.assign(size_t(num_layers), layer);
  return spec;
}

absl::Status ReadAttentionBias(const ConfigJson& config, bool otherwise, ModelSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(const bool bias, config.BoolOr("attention_bias", otherwise));
  for (LayerSpec& layer : spec->layers) {
    AttentionSpec& attention = layer.attention;
    attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = bias;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::vector<std::string>>> FindLayerTypes(const ConfigJson& config, size_t num_layers,
                                                                       std::initializer_list<absl::string_view> known) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> types, config.FindStrings("layer_types"));
  if (!types.has_value()) return types;
  if (types->size() != num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'layer_types' has ", types->size(),
                                                   " entries, expected one for each of the ", num_layers, " layers"));
  }
  for (const std::string& type : *types) {
    if (std::find(known.begin(), known.end(), type) != known.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'layer_types' holds ", Quote(type),
                                                   ", expected ", absl::StrJoin(known, " or ")));
  }
  return types;
}

absl::Status SetSlidingLayers(const ConfigJson& config, std::optional<int64_t> window,
                              const std::vector<bool>& by_default, ModelSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> types,
                          FindLayerTypes(config, spec->layers.size(), {"full_attention", "sliding_attention"}));
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    if (!(types.has_value() ? (*types)[i] == "sliding_attention" : by_default[i])) continue;
    if (!window.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'layer_types' lets layer ", i,
                                                     " slide, but there is no 'sliding_window'"));
    }
    spec->layers[i].attention.mask = {MaskKind::kWindow, int32_t(*window)};
  }
  return absl::OkStatus();
}

}  // namespace sluice
