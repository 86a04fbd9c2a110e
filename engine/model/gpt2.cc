// GPT-2 (Radford et al. 2019): layer norms with biases, learned positions, one head of keys per head of queries, biases
// everywhere, a plain tanh-GELU FFN. Folders hold every matrix transposed.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/decoder_config.h"
#include "engine/model/gguf_keys.h"

namespace sluice {
namespace {

using enum TensorRole;

constexpr int64_t kMax = INT32_MAX;
constexpr int64_t kMaxWidth = kMax / 4;  // the FFN is four times as wide by default

constexpr TensorForm kTransposed{.transposed = true};
constexpr TensorForm kStacked{.rows = TensorRows::kStacked};
constexpr TensorForm kStackedTransposed{.rows = TensorRows::kStacked, .transposed = true};

constexpr TensorName kFolderNames[] = {
    {kTokenEmbedding, "{model}wte.weight"},
    {kPositionEmbedding, "{model}wpe.weight"},
    {kFinalNorm, "{model}ln_f.weight"},
    {kFinalNormBias, "{model}ln_f.bias"},
    {kOutputHead, "lm_head.weight"},
    {kPreAttnNorm, "{model}h.{layer}.ln_1.weight"},
    {kPreAttnNormBias, "{model}h.{layer}.ln_1.bias"},
    {kPreFfnNorm, "{model}h.{layer}.ln_2.weight"},
    {kPreFfnNormBias, "{model}h.{layer}.ln_2.bias"},
    {kQ, "{model}h.{layer}.attn.c_attn.weight", kStackedTransposed},
    {kK, "{model}h.{layer}.attn.c_attn.weight", kStackedTransposed},
    {kV, "{model}h.{layer}.attn.c_attn.weight", kStackedTransposed},
    {kQBias, "{model}h.{layer}.attn.c_attn.bias", kStacked},
    {kKBias, "{model}h.{layer}.attn.c_attn.bias", kStacked},
    {kVBias, "{model}h.{layer}.attn.c_attn.bias", kStacked},
    {kO, "{model}h.{layer}.attn.c_proj.weight", kTransposed},
    {kOBias, "{model}h.{layer}.attn.c_proj.bias"},
    {kUp, "{model}h.{layer}.mlp.c_fc.weight", kTransposed},
    {kUpBias, "{model}h.{layer}.mlp.c_fc.bias"},
    {kDown, "{model}h.{layer}.mlp.c_proj.weight", kTransposed},
    {kDownBias, "{model}h.{layer}.mlp.c_proj.bias"},
};

// The first OpenAI files have no prefix.
constexpr absl::string_view kFolderPrefixes[] = {"transformer.", ""};

// Buffers with the causal mask, which old versions saved.
constexpr absl::string_view kFolderIgnored[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias"};

constexpr TensorName kGgufNames[] = {
    {kPositionEmbedding, "position_embd.weight"},     {kFinalNormBias, "output_norm.bias"},
    {kPreAttnNormBias, "blk.{layer}.attn_norm.bias"}, {kPreFfnNormBias, "blk.{layer}.ffn_norm.bias"},
    {kQ, "blk.{layer}.attn_qkv.weight", kStacked},    {kK, "blk.{layer}.attn_qkv.weight", kStacked},
    {kV, "blk.{layer}.attn_qkv.weight", kStacked},    {kQBias, "blk.{layer}.attn_qkv.bias", kStacked},
    {kKBias, "blk.{layer}.attn_qkv.bias", kStacked},  {kVBias, "blk.{layer}.attn_qkv.bias", kStacked},
};

// All layers alike. `spec` has its sizes.
void FillLayers(int32_t num_heads, float eps, const DenseFfn& ffn, ModelSpec* spec) {
  const int32_t head_dim = spec->d_model / num_heads;
  const NormParams norm{.kind = NormKind::kLayer, .eps = eps};
  for (LayerSpec& layer : spec->layers) {
    layer.pre_attn = layer.pre_ffn = norm;
    AttentionSpec& attention = layer.attention;
    attention.kind = Gqa{.num_heads = num_heads,
                         .num_kv_heads = num_heads,
                         .head_dim = head_dim,
                         .value_head_dim = head_dim,
                         .qk_norm = {}};
    attention.scale = 1 / std::sqrt(float(head_dim));
    attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = true;
    layer.ffn = ffn;
  }
  spec->final_norm = norm;
  spec->position_embedding = PositionEmbedding::kLearned;
}

absl::Status WidthIsNoMultiple(const std::string& file, absl::string_view key, int32_t d_model, int32_t num_heads) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": key ", Quote(key), " is ", d_model,
                                                 ", expected a multiple of the number of heads, ", num_heads));
}

}  // namespace

TensorNaming Gpt2FolderTensorNames() {
  return {.names = kFolderNames, .prefixes = kFolderPrefixes, .ignored = kFolderIgnored};
}
TensorNaming Gpt2GgufTensorNames() {
  static const std::vector<TensorName> names = ExtendNames(kGgufNames, GgufTensorNames());
  return {.names = names};
}

absl::StatusOr<ModelSpec> Gpt2FromConfig(const ConfigJson& config) {
  ModelSpec spec;
  spec.architecture = "gpt2";
  SLUICE_ASSIGN_OR_RETURN(spec.vocab_size, config.IntOr("vocab_size", 1, kMax, 50257));
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, config.GetInt("n_embd", 1, kMaxWidth));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, config.IntOr("n_positions", 1, kMax, 1024));
  config.Ignore("n_ctx");  // the same again
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_layers, config.GetInt("n_layer", 1, 1 << 16));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_heads, config.GetInt("n_head", 1, kMax));
  if (spec.d_model % num_heads != 0) {
    return WidthIsNoMultiple(config.name(), "n_embd", spec.d_model, int32_t(num_heads));
  }
  DenseFfn ffn{.gated = false, .bias = true};
  SLUICE_ASSIGN_OR_RETURN(ffn.intermediate_size, config.IntOr("n_inner", 1, kMax, 4 * int64_t{spec.d_model}));
  SLUICE_ASSIGN_OR_RETURN(ffn.activation.kind, ReadActivation(config, "activation_function", "gelu_new"));
  SLUICE_ASSIGN_OR_RETURN(const float eps, config.FloatOr("layer_norm_epsilon", 1e-5f));
  SLUICE_ASSIGN_OR_RETURN(const bool scaled, config.BoolOr("scale_attn_weights", true));
  SLUICE_ASSIGN_OR_RETURN(const bool by_layer, config.BoolOr("scale_attn_by_inverse_layer_idx", false));
  config.Ignore("reorder_and_upcast_attn");  // where the scale is applied, not which
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", true));
  spec.layers.resize(size_t(num_layers));
  FillLayers(int32_t(num_heads), eps, ffn, &spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    float& scale = spec.layers[i].attention.scale;
    if (!scaled) scale = 1;
    if (by_layer) scale /= float(i + 1);
  }
  return spec;
}

absl::StatusOr<ModelSpec> Gpt2FromGguf(const Gguf& gguf) {
  const GgufKeys keys(gguf, "gpt2");
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufSizes(keys));
  const int64_t num_layers = int64_t(spec.layers.size());
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_heads, keys.SameInAllLayers("attention.head_count", num_layers));
  if (spec.d_model % num_heads != 0) {
    return WidthIsNoMultiple(gguf.name(), keys.Key("embedding_length"), spec.d_model, num_heads);
  }
  DenseFfn ffn{.gated = false, .activation = {.kind = ActivationKind::kGeluTanh}, .bias = true};
  SLUICE_ASSIGN_OR_RETURN(ffn.intermediate_size, keys.SameInAllLayers("feed_forward_length", num_layers));
  SLUICE_ASSIGN_OR_RETURN(const float eps, keys.GetPositive("attention.layer_norm_epsilon"));
  FillLayers(num_heads, eps, ffn, &spec);
  return spec;
}

}  // namespace sluice
