// Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786), the text model: norms before and after both halves of a
// layer, embeddings scaled by the root of the width, tanh GELU, most layers with a window. Gemma 2 caps the attention
// scores; Gemma 3 norms queries and keys instead and rotates them by one table in window layers, another in the full
// ones.
#include <cmath>
#include <optional>
#include <vector>

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
constexpr int64_t kMaxSize = 1 << 20;

constexpr TensorName kFolderNames[] = {
    {kOutputHead, "lm_head.weight"},
    {kOutputHead, "language_model.lm_head.weight"},
    {kPostAttnNorm, "{model}layers.{layer}.post_attention_layernorm.weight"},
    {kPreFfnNorm, "{model}layers.{layer}.pre_feedforward_layernorm.weight"},
    {kPostFfnNorm, "{model}layers.{layer}.post_feedforward_layernorm.weight"},
};

// The text model alone, and inside the multimodal one as Gemma 3 was published and as later versions write it.
constexpr absl::string_view kFolderPrefixes[] = {"model.", "language_model.model.", "model.language_model."};

constexpr absl::string_view kFolderIgnored[] = {
    "vision_tower.*",        "multi_modal_projector.*", "model.vision_tower.*", "model.multi_modal_projector.*",
    "*.rotary_emb.inv_freq",
};

constexpr absl::string_view kActivation = "gelu_pytorch_tanh";

// The root of the width that is the base of the softmax scale: of a head, or of what the largest models take instead.
float RootScale(int64_t width) { return float(1 / std::sqrt(double(width))); }

// Layers whose index + 1 is a multiple of `pattern` see everything, the others slide.
std::vector<bool> SlidingByPattern(int64_t num_layers, int64_t pattern) {
  std::vector<bool> slides;
  for (int64_t i = 0; i < num_layers; ++i) slides.push_back((i + 1) % pattern != 0);
  return slides;
}

// ---------------------------------------------------------------- config.json

// Where the classes of the two generations differ in what they assume for a key that is missing.
struct Generation {
  int64_t vocab_size;
  int64_t max_position;
  bool qk_norm;
};
constexpr Generation kGemma2 = {.vocab_size = 256000, .max_position = 8192, .qk_norm = false};
constexpr Generation kGemma3 = {.vocab_size = 262208, .max_position = 131072, .qk_norm = true};

absl::StatusOr<LayerSpec> ReadLayer(const ConfigJson& config, const Generation& generation, const NormParams& norm) {
  Gqa gqa;
  SLUICE_ASSIGN_OR_RETURN(gqa.num_heads, config.IntOr("num_attention_heads", 1, kMaxSize, 8));
  SLUICE_ASSIGN_OR_RETURN(gqa.num_kv_heads, config.IntOr("num_key_value_heads", 1, kMaxSize, 4));
  SLUICE_ASSIGN_OR_RETURN(gqa.head_dim, config.IntOr("head_dim", 1, kMaxSize, 256));
  gqa.value_head_dim = gqa.head_dim;
  if (generation.qk_norm) gqa.qk_norm = {.kind = QkNormKind::kPerHead, .norm = norm};
  DenseFfn ffn;
  SLUICE_ASSIGN_OR_RETURN(ffn.intermediate_size, config.IntOr("intermediate_size", 1, kMax, 9216));
  SLUICE_ASSIGN_OR_RETURN(ffn.activation.kind, ReadActivation(config, "hidden_activation", kActivation));
  SLUICE_ASSIGN_OR_RETURN(const int64_t scalar, config.IntOr("query_pre_attn_scalar", 1, kMax, 256));

  LayerSpec layer;
  layer.pre_attn = layer.post_attn = layer.pre_ffn = layer.post_ffn = norm;
  layer.attention.kind = gqa;
  layer.attention.scale = RootScale(scalar);
  layer.ffn = ffn;
  return layer;
}

// Everything but RoPE, softcaps and the output head. Layers slide by `pattern` unless the file says which do.
absl::StatusOr<ModelSpec> ReadText(const ConfigJson& config, const Generation& generation, int64_t pattern) {
  SLUICE_ASSIGN_OR_RETURN(const bool both_ways, config.BoolOr("use_bidirectional_attention", false));
  if (both_ways) {
    return absl::UnimplementedError(absl::StrCat(
        config.name(), ": key 'use_bidirectional_attention' is true: models that look ahead do not generate text"));
  }
  // Once more what other keys say.
  config.Ignore("hidden_act");
  config.Ignore("sliding_window_size");
  ModelSpec spec;
  SLUICE_ASSIGN_OR_RETURN(spec.vocab_size, config.IntOr("vocab_size", 1, kMax, generation.vocab_size));
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, config.IntOr("hidden_size", 1, kMax, 2304));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, config.IntOr("max_position_embeddings", 1, kMax, generation.max_position));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_layers, config.IntOr("num_hidden_layers", 1, 1 << 16, 26));
  SLUICE_ASSIGN_OR_RETURN(const float eps, config.FloatOr("rms_norm_eps", 1e-6f));
  spec.final_norm = {.eps = eps, .weight_offset = 1};
  spec.embedding_scale = std::sqrt(float(spec.d_model));
  SLUICE_ASSIGN_OR_RETURN(const LayerSpec layer, ReadLayer(config, generation, spec.final_norm));
  spec.layers.assign(size_t(num_layers), layer);
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, false, &spec));

  std::optional<int64_t> window = 4096;
  if (config.Has("sliding_window")) {
    SLUICE_ASSIGN_OR_RETURN(window, config.FindInt("sliding_window", 1, kMax));
  }
  SLUICE_RETURN_IF_ERROR(SetSlidingLayers(config, window, SlidingByPattern(num_layers, pattern), &spec));
  return spec;
}

// A cap that null turns off.
absl::StatusOr<std::optional<float>> ReadSoftcap(const ConfigJson& config, absl::string_view key,
                                                 std::optional<float> otherwise) {
  if (!config.Has(key)) return otherwise;
  return config.FindFloat(key);
}

int32_t HeadDim(const ModelSpec& spec) { return std::get<Gqa>(spec.layers[0].attention.kind).head_dim; }

// RoPE of full layers, then of those that slide.
void SetRope(RopeSpec full, RopeSpec sliding, ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    layer.attention.rope = layer.attention.mask.kind == MaskKind::kWindow ? sliding : full;
  }
}

// RoPE of the layers that `layer_type` names. Files of the first versions have `theta_key`, and for the full layers
// rope_scaling; transformers 5 writes one object per type into rope_parameters.
absl::StatusOr<RopeSpec> ReadGemma3Rope(const ConfigJson& config, absl::string_view layer_type,
                                        absl::string_view theta_key, float theta, ModelSpec* spec) {
  RopeConfig rope;
  SLUICE_ASSIGN_OR_RETURN(theta, config.FloatOr(theta_key, theta));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> parameters, config.FindObject("rope_parameters"));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> scaling, config.FindObject("rope_scaling"));
  std::optional<ConfigJson> own;
  if (parameters.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(own, parameters->FindObject(layer_type));
  } else if (layer_type == "full_attention" && scaling.has_value()) {
    if (scaling->Has("rope_type")) {
      own = scaling;
    } else {
      config.Warn(
          "key 'rope_scaling' has no 'rope_type', without which it means nothing to this family: the model "
          "runs with unscaled RoPE");
    }
  }
  if (own.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(rope, ReadRopeConfig(config, *own, {.theta = theta, .max_position = spec->max_position}));
    SLUICE_ASSIGN_OR_RETURN(theta, own->FloatOr("rope_theta", theta));
  }
  rope.theta = theta;
  if (!(theta > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": the base of the RoPE of ", layer_type, " (",
                                                   Quote(theta_key), ") is ", theta, ", expected a number above 1"));
  }
  return AddRope(config.name(), rope, HeadDim(*spec), RopeLayout::kHalfSplit, spec);
}

absl::StatusOr<ModelSpec> ReadGemma3Text(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t pattern, config.IntOr("sliding_window_pattern", 1, kMax, 6));
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadText(config, kGemma3, pattern));
  spec.architecture = "gemma3";
  config.Ignore("_sliding_window_pattern");
  config.Ignore("attn_logit_softcapping");  // of Gemma 2; its successor caps no attention whatever it says
  SLUICE_ASSIGN_OR_RETURN(const RopeSpec full, ReadGemma3Rope(config, "full_attention", "rope_theta", 1e6f, &spec));
  SLUICE_ASSIGN_OR_RETURN(const RopeSpec sliding,
                          ReadGemma3Rope(config, "sliding_attention", "rope_local_base_freq", 1e4f, &spec));
  SetRope(full, sliding, &spec);
  spec.longest_position = spec.max_position;  // which counts the linear factor
  return spec;
}

// ---------------------------------------------------------------- GGUF

// What the two generations have in common; `layers_of_27b` is how many the model has whose softmax scale is that of
// d_model / num_heads, for which there is no key. Converters add the 1 to the norms.
absl::StatusOr<ModelSpec> ReadGguf(const GgufKeys& keys, size_t layers_of_27b, const Generation& generation) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(keys, RopeLayout::kHalfSplit));
  spec.embedding_scale = std::sqrt(float(spec.d_model));
  for (LayerSpec& layer : spec.layers) {
    Gqa& gqa = std::get<Gqa>(layer.attention.kind);
    layer.post_attn = layer.post_ffn = spec.final_norm;
    if (generation.qk_norm) gqa.qk_norm = {.kind = QkNormKind::kPerHead, .norm = spec.final_norm};
    if (spec.layers.size() == layers_of_27b) layer.attention.scale = RootScale(spec.d_model / gqa.num_heads);
    std::get<DenseFfn>(layer.ffn).activation.kind = ActivationKind::kGeluTanh;
  }
  return spec;
}

}  // namespace

TensorNaming GemmaFolderTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kFolderNames, HuggingFaceDenseTensorNames());
  return {.names = names, .prefixes = kFolderPrefixes, .ignored = kFolderIgnored};
}
TensorNaming GemmaGgufTensorNames() { return {.names = GgufTensorNames().names}; }

absl::StatusOr<ModelSpec> Gemma2FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadText(config, kGemma2, 2));
  spec.architecture = "gemma2";
  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope, ReadRopeConfig(config, {.max_position = spec.max_position}));
  SLUICE_ASSIGN_OR_RETURN(const RopeSpec rotation,
                          AddRope(config.name(), rope, HeadDim(spec), RopeLayout::kHalfSplit, &spec));
  SetRope(rotation, rotation, &spec);
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> softcap, ReadSoftcap(config, "attn_logit_softcapping", 50.0f));
  for (LayerSpec& layer : spec.layers) layer.attention.softcap = softcap;
  SLUICE_ASSIGN_OR_RETURN(spec.final_softcap, ReadSoftcap(config, "final_logit_softcapping", 30.0f));
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", true));
  return spec;
}

absl::StatusOr<ModelSpec> Gemma3TextFromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGemma3Text(config));
  SLUICE_ASSIGN_OR_RETURN(spec.final_softcap, ReadSoftcap(config, "final_logit_softcapping", std::nullopt));
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", true));
  return spec;
}

absl::StatusOr<ModelSpec> Gemma3FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const ConfigJson text, config.GetObject("text_config"));
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGemma3Text(text));
  text.Ignore("final_logit_softcapping");
  text.Ignore("tie_word_embeddings");
  // The multimodal model has the output head, hence the word on it, and caps nothing.
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", true));
  return spec;
}

absl::StatusOr<ModelSpec> Gemma2FromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "gemma2");
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGguf(keys, 46, kGemma2));
  SLUICE_ASSIGN_OR_RETURN(const int32_t window, keys.IntOr("attention.sliding_window", 1, kMax, 4096));
  SLUICE_RETURN_IF_ERROR(SetMasksByPattern(keys, {MaskKind::kWindow, window}, 2, &spec));
  SLUICE_ASSIGN_OR_RETURN(const float softcap, keys.PositiveOr("attn_logit_softcapping", 50));
  for (LayerSpec& layer : spec.layers) layer.attention.softcap = softcap;
  SLUICE_ASSIGN_OR_RETURN(spec.final_softcap, keys.PositiveOr("final_logit_softcapping", 30));
  return spec;
}

absl::StatusOr<ModelSpec> Gemma3FromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "gemma3");
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGguf(keys, 62, kGemma3));
  spec.longest_position = spec.max_position;  // which counts the linear factor
  SLUICE_ASSIGN_OR_RETURN(const int32_t window, keys.IntOr("attention.sliding_window", 0, kMax, 0));
  SLUICE_ASSIGN_OR_RETURN(spec.final_softcap, keys.FindPositive("final_logit_softcapping"));
  if (window == 0) return spec;
  SLUICE_RETURN_IF_ERROR(SetMasksByPattern(keys, {MaskKind::kWindow, window}, 6, &spec));
  SLUICE_ASSIGN_OR_RETURN(const float theta, keys.PositiveOr("rope.freq_base_swa", 1e4f));
  const RopeSpec full = *spec.layers[0].attention.rope;
  RopeSpec sliding = full;
  sliding.table = int32_t(spec.rope_tables.size());
  spec.rope_tables.push_back(MakeRopeTable(theta, full.num_rotary, {}));
  SetRope(full, sliding, &spec);
  return spec;
}

}  // namespace sluice
