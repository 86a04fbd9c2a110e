// Llama 4, the text model: most layers see a chunk of the context and rotate queries and keys, every fourth sees all of
// it and does not but grows its queries with the position; a mixture of experts with a shared one in all layers (Scout)
// or every other (Maverick), whose weights multiply what an expert is given.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
constexpr absl::string_view kChunked = "chunked_attention";

constexpr TensorForm kTransposed = {.transposed = true};
constexpr TensorForm kTransposedStack = {.rows = TensorRows::kStacked, .transposed = true};

constexpr TensorName kFolderNames[] = {
    {kOutputHead, "lm_head.weight"},
    {kOutputHead, "language_model.lm_head.weight"},
    {kGate, "{model}layers.{layer}.feed_forward.gate_proj.weight"},
    {kUp, "{model}layers.{layer}.feed_forward.up_proj.weight"},
    {kDown, "{model}layers.{layer}.feed_forward.down_proj.weight"},
    {kRouter, "{model}layers.{layer}.feed_forward.router.weight"},
    // Stored [in, out].
    {kExpertGate, "{model}layers.{layer}.feed_forward.experts.gate_up_proj", kTransposedStack},
    {kExpertUp, "{model}layers.{layer}.feed_forward.experts.gate_up_proj", kTransposedStack},
    {kExpertDown, "{model}layers.{layer}.feed_forward.experts.down_proj", kTransposed},
    {kSharedGate, "{model}layers.{layer}.feed_forward.shared_expert.gate_proj.weight"},
    {kSharedUp, "{model}layers.{layer}.feed_forward.shared_expert.up_proj.weight"},
    {kSharedDown, "{model}layers.{layer}.feed_forward.shared_expert.down_proj.weight"},
};

constexpr absl::string_view kFolderPrefixes[] = {"language_model.model.", "model."};
constexpr absl::string_view kFolderIgnored[] = {"vision_model.*", "vision_tower.*", "multi_modal_projector.*",
                                                "*.rotary_emb.inv_freq"};

// What no file says: each chosen expert sees its sigmoid times the input, the shared one, as wide, the input itself.
void FillIn(MoeFfn* moe) {
  moe->routing.score = MoeScore::kSigmoid;
  moe->weight_on_input = true;
  moe->shared_intermediate_size = moe->expert_intermediate_size;
}

// Layers that rotate norm queries and keys with `qk_norm`; the others, whose queries grow with `temperature`, do
// neither.
// REQUIRES: all layers have a RoPE, and it is interleaved.
void SetPositions(const std::vector<bool>& rotates, bool qk_norm, const std::optional<QueryTemperature>& temperature,
                  ModelSpec* spec) {
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    AttentionSpec& attention = spec->layers[i].attention;
    if (!rotates[i]) {
      attention.rope.reset();
      attention.query_temperature = temperature;
    } else if (qk_norm) {
      std::get<Gqa>(attention.kind).qk_norm = {
          .kind = QkNormKind::kL2PerHead, .norm = spec->final_norm, .after_rope = true};
    }
  }
}

// ---------------------------------------------------------------- config.json

// `no_rope_layers` says the opposite of its name: 1 for a layer that rotates. Empty or missing: all but every fourth.
absl::StatusOr<std::vector<bool>> ReadRotatedLayers(const ConfigJson& config, size_t num_layers) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t interval, config.IntOr("no_rope_layer_interval", 1, kMax, 4));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> list, config.FindInts("no_rope_layers", 0, 1));
  std::vector<bool> rotates;
  if (!list.has_value() || list->empty()) {
    for (size_t i = 0; i < num_layers; ++i) rotates.push_back(int64_t(i + 1) % interval != 0);
    return rotates;
  }
  if (list->size() < num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'no_rope_layers' has ", list->size(),
                                                   " entries for ", num_layers, " layers"));
  }
  for (size_t i = 0; i < num_layers; ++i) rotates.push_back((*list)[i] != 0);
  return rotates;
}

absl::Status SetMasks(const ConfigJson& config, const std::vector<bool>& rotates, ModelSpec* spec) {
  std::optional<int64_t> chunk = 8192;
  if (config.Has("attention_chunk_size")) {
    SLUICE_ASSIGN_OR_RETURN(chunk, config.FindInt("attention_chunk_size", 1, kMax));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> types,
                          FindLayerTypes(config, spec->layers.size(), {kChunked, "full_attention"}));
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    const bool chunked = types.has_value() ? (*types)[i] == kChunked : rotates[i] && chunk.has_value();
    if (!chunked) continue;
    if (!chunk.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(config.name(), ": key 'attention_chunk_size' is null, but layer ", i, " is chunked"));
    }
    spec->layers[i].attention.mask = {MaskKind::kChunk, int32_t(*chunk)};
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QueryTemperature>> ReadTemperature(const ConfigJson& config) {
  bool tuned;
  // The first files have the number 4 where later ones say true.
  const absl::StatusOr<std::optional<int64_t>> number = config.FindInt("attn_temperature_tuning", 0, kMax);
  if (number.ok()) {
    tuned = number->value_or(1) != 0;
  } else {
    SLUICE_ASSIGN_OR_RETURN(tuned, config.BoolOr("attn_temperature_tuning", true));
  }
  if (!tuned) return std::nullopt;
  QueryTemperature temperature;
  SLUICE_ASSIGN_OR_RETURN(temperature.floor, config.FloatOr("floor_scale", 8192));
  SLUICE_ASSIGN_OR_RETURN(temperature.coef, config.FloatOr("attn_scale", 0.1f));
  return std::optional<QueryTemperature>(temperature);
}

// Which layers have experts: those that `moe_layers` lists, or the last of every `interleave_moe_layer_step`.
absl::StatusOr<std::vector<bool>> ReadMoeLayers(const ConfigJson& config, size_t num_layers) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t step, config.IntOr("interleave_moe_layer_step", 1, kMax, 1));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> list, config.FindInts("moe_layers", 0, kMax));
  std::vector<bool> moe(num_layers, false);
  if (!list.has_value()) {
    for (size_t i = 0; i < num_layers; ++i) moe[i] = int64_t(i + 1) % step == 0;
    return moe;
  }
  for (int64_t layer : *list) {
    if (size_t(layer) < num_layers) moe[size_t(layer)] = true;
  }
  return moe;
}

absl::Status SetFfns(const ConfigJson& config, ModelSpec* spec) {
  DenseFfn dense = std::get<DenseFfn>(spec->layers[0].ffn);
  MoeFfn moe;
  moe.activation = dense.activation;
  moe.expert_intermediate_size = dense.intermediate_size;
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts, config.IntOr("num_local_experts", 1, kMaxSize, 16));
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, config.IntOr("num_experts_per_tok", 1, kMaxSize, 1));
  FillIn(&moe);
  SLUICE_ASSIGN_OR_RETURN(dense.intermediate_size, config.IntOr("intermediate_size_mlp", 1, kMax, 16384));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<bool> has_experts, ReadMoeLayers(config, spec->layers.size()));
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    if (has_experts[i]) {
      spec->layers[i].ffn = moe;
    } else {
      spec->layers[i].ffn = dense;
    }
  }
  return absl::OkStatus();
}

}  // namespace

TensorNaming Llama4FolderTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kFolderNames, HuggingFaceDenseTensorNames());
  return {.names = names, .prefixes = kFolderPrefixes, .ignored = kFolderIgnored};
}

absl::StatusOr<ModelSpec> Llama4TextFromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadDecoderConfig(config, {.architecture = "llama4",
                                                                     .max_position = 131072,
                                                                     .num_kv_heads = 8,
                                                                     .head_dim = 128,
                                                                     .rms_norm_eps = 1e-5f,
                                                                     .rope_theta = 5e5f}));
  SLUICE_RETURN_IF_ERROR(ReadAttentionBias(config, false, &spec));
  for (LayerSpec& layer : spec.layers) layer.attention.rope->layout = RopeLayout::kInterleaved;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<bool> rotates, ReadRotatedLayers(config, spec.layers.size()));
  SLUICE_ASSIGN_OR_RETURN(const bool qk_norm, config.BoolOr("use_qk_norm", true));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<QueryTemperature> temperature, ReadTemperature(config));
  SetPositions(rotates, qk_norm, temperature, &spec);
  SLUICE_RETURN_IF_ERROR(SetMasks(config, rotates, &spec));
  SLUICE_RETURN_IF_ERROR(SetFfns(config, &spec));
  return spec;
}

absl::StatusOr<ModelSpec> Llama4FromConfig(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const ConfigJson text, config.GetObject("text_config"));
  config.Ignore("tie_word_embeddings");  // the text model has the output head, hence the word on it
  return Llama4TextFromConfig(text);
}

absl::StatusOr<ModelSpec> Llama4FromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "llama4");
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufDecoder(keys, RopeLayout::kInterleaved));
  if (keys.Has("attention.sliding_window")) {
    return keys.Unsupported("attention.sliding_window", "is there, which Llama 4 itself does without");
  }
  SLUICE_ASSIGN_OR_RETURN(std::optional<MoeFfn> moe, ReadGgufMoe(keys, spec.layers.size()));
  SLUICE_ASSIGN_OR_RETURN(const int32_t step, keys.GetInt("interleave_moe_layer_step", 1, kMax));
  if (!moe.has_value()) return keys.Unsupported("expert_count", "is 0, but all models of the family have experts");
  FillIn(&*moe);
  // No key says any of this: chunks of 8192 but in every fourth layer, and of the two models the smaller norms.
  std::vector<bool> rotates;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    rotates.push_back((i + 1) % 4 != 0);
    if (rotates[i]) layer.attention.mask = {MaskKind::kChunk, 8192};
    if ((i + 1) % size_t(step) == 0) layer.ffn = *moe;
  }
  SetPositions(rotates, moe->routing.num_experts != 128, QueryTemperature{.floor = 8192, .coef = 0.1f}, &spec);
  return spec;
}

}  // namespace sluice
