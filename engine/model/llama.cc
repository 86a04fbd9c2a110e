// Llama 1 to 3 and the models built the same way (SmolLM2, Mistral and others as GGUF): RMS norms before attention and
// FFN, grouped-query attention with RoPE, a gated SiLU FFN.
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/rope.h"

namespace sluice {
namespace {

constexpr int64_t kMax = INT32_MAX;

LayerSpec MakeLayer(const Gqa& gqa, const RopeSpec& rope, const NormParams& norm, int32_t intermediate_size) {
  LayerSpec layer;
  layer.pre_attn = norm;
  layer.pre_ffn = norm;
  layer.attention.kind = gqa;
  layer.attention.rope = rope;
  layer.attention.scale = 1 / std::sqrt(float(gqa.head_dim));
  layer.ffn = DenseFfn{.intermediate_size = intermediate_size};
  return layer;
}

std::string Key(absl::string_view key) { return absl::StrCat("llama.", key); }

absl::Status Unsupported(const Gguf& gguf, absl::string_view key, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(gguf.name(), ": key '", Key(key), "' ", what));
}

// A number that may be written per layer but must be the same in all of them.
absl::StatusOr<int32_t> SameInAllLayers(const Gguf& gguf, absl::string_view key, int64_t num_layers) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, gguf.GetIntPerLayer(Key(key), num_layers, 1, kMax));
  for (int64_t value : values) {
    if (value != values[0]) {
      return Unsupported(
          gguf, key,
          absl::StrCat("differs between layers (", values[0], " and ", value, "), which is not supported yet"));
    }
  }
  return int32_t(values[0]);
}

absl::StatusOr<int32_t> IntOr(const Gguf& gguf, absl::string_view key, int32_t otherwise) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, gguf.FindInt(Key(key), 1, kMax));
  return int32_t(value.value_or(otherwise));
}

absl::StatusOr<float> PositiveOr(const Gguf& gguf, absl::string_view key, float otherwise) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> value, gguf.FindFloat(Key(key)));
  if (!value.has_value()) return otherwise;
  if (*value > 0 && std::isfinite(*value)) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat(gguf.name(), ": key '", Key(key), "' is ", *value, ", expected a finite number above 0"));
}

absl::StatusOr<Gqa> ReadHeads(const Gguf& gguf, int64_t num_layers, int32_t d_model) {
  Gqa gqa;
  SLUICE_ASSIGN_OR_RETURN(gqa.num_heads, SameInAllLayers(gguf, "attention.head_count", num_layers));
  gqa.num_kv_heads = gqa.num_heads;
  if (gguf.Has(Key("attention.head_count_kv"))) {
    SLUICE_ASSIGN_OR_RETURN(gqa.num_kv_heads, SameInAllLayers(gguf, "attention.head_count_kv", num_layers));
  }
  if (d_model % gqa.num_heads != 0 && !gguf.Has(Key("attention.key_length"))) {
    return absl::InvalidArgumentError(absl::StrCat(
        gguf.name(), ": key '", Key("embedding_length"), "' is ", d_model, ", expected a multiple of '",
        Key("attention.head_count"), "' ", gqa.num_heads, " where '", Key("attention.key_length"), "' is missing"));
  }
  SLUICE_ASSIGN_OR_RETURN(gqa.head_dim, IntOr(gguf, "attention.key_length", d_model / gqa.num_heads));
  SLUICE_ASSIGN_OR_RETURN(gqa.value_head_dim, IntOr(gguf, "attention.value_length", gqa.head_dim));
  return gqa;
}

absl::StatusOr<RopeScaling> ReadScaling(const Gguf& gguf, int32_t max_position) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<absl::string_view> type, gguf.FindString(Key("rope.scaling.type")));
  // rope.scale_linear is how files older than rope.scaling.* say "linear".
  SLUICE_ASSIGN_OR_RETURN(const float old_factor, PositiveOr(gguf, "rope.scale_linear", 1));
  SLUICE_ASSIGN_OR_RETURN(const float factor, PositiveOr(gguf, "rope.scaling.factor", old_factor));
  if (!type.has_value()) {
    return factor == 1 ? RopeScaling{} : RopeScaling{LinearRope{factor}};
  }
  if (*type == "none") return RopeScaling{};
  if (*type == "linear") return LinearRope{factor};
  if (*type == "yarn") {
    YarnRope yarn{.factor = factor};
    SLUICE_ASSIGN_OR_RETURN(yarn.original_max_position,
                            IntOr(gguf, "rope.scaling.original_context_length", max_position));
    SLUICE_ASSIGN_OR_RETURN(yarn.beta_fast, PositiveOr(gguf, "rope.scaling.yarn_beta_fast", yarn.beta_fast));
    SLUICE_ASSIGN_OR_RETURN(yarn.beta_slow, PositiveOr(gguf, "rope.scaling.yarn_beta_slow", yarn.beta_slow));
    SLUICE_ASSIGN_OR_RETURN(yarn.attention_factor, gguf.FindFloat(Key("rope.scaling.attn_factor")));
    return yarn;
  }
  return Unsupported(gguf, "rope.scaling.type",
                     absl::StrCat("is '", *type, "', which is not supported yet; supported are none, linear, yarn"));
}

// rope_freqs.weight holds a divisor for every frequency (how converters write Llama 3.1's scaling).
absl::Status DivideFrequencies(const Gguf& gguf, RopeTable* table) {
  const TensorView* divisors = gguf.FindTensor("rope_freqs.weight");
  if (divisors == nullptr) return absl::OkStatus();
  if (divisors->type != TensorType::kF32 || divisors->num_elements() != int64_t(table->inv_freq.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(gguf.name(), ": tensor 'rope_freqs.weight' has ", divisors->num_elements(), " elements of type ",
                     TensorTypeName(divisors->type), ", expected ", table->inv_freq.size(), " of type F32"));
  }
  for (size_t i = 0; i < table->inv_freq.size(); ++i) {
    float divisor;
    std::memcpy(&divisor, divisors->data.data() + i * sizeof(float), sizeof(float));
    if (!(divisor > 0 && std::isfinite(divisor))) {
      return absl::InvalidArgumentError(absl::StrCat(gguf.name(), ": tensor 'rope_freqs.weight' holds ", divisor,
                                                     " at ", i, ", expected finite numbers above 0"));
    }
    table->inv_freq[i] /= divisor;
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeTable> ReadRopeTable(const Gguf& gguf, int32_t num_rotary, int32_t max_position) {
  SLUICE_ASSIGN_OR_RETURN(const float base, PositiveOr(gguf, "rope.freq_base", 1e4f));
  if (num_rotary % 2 != 0 || num_rotary > (1 << 16) || !(base > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(gguf.name(), ": keys '", Key("rope.dimension_count"), "' and '",
                                                   Key("rope.freq_base"), "' are ", num_rotary, " and ", base,
                                                   ", expected an even number within the head and a number above 1"));
  }
  SLUICE_ASSIGN_OR_RETURN(const RopeScaling scaling, ReadScaling(gguf, max_position));
  RopeTable table = MakeRopeTable(base, num_rotary, scaling);
  SLUICE_RETURN_IF_ERROR(DivideFrequencies(gguf, &table));
  return table;
}

absl::Status RefuseWhatIsMissing(const Gguf& gguf) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> experts, gguf.FindInt(Key("expert_count"), 0, kMax));
  if (experts.value_or(0) != 0) {
    return Unsupported(gguf, "expert_count",
                       absl::StrCat("is ", *experts, ": mixtures of experts are not supported yet"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<bool> causal, gguf.FindBool(Key("attention.causal")));
  if (!causal.value_or(true)) {
    return Unsupported(gguf, "attention.causal", "is false: models that look ahead do not generate text");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> LlamaFromGguf(const Gguf& gguf) {
  SLUICE_RETURN_IF_ERROR(RefuseWhatIsMissing(gguf));
  ModelSpec spec;
  spec.architecture = "llama";
  const TensorView* embedding = gguf.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] > kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(gguf.name(), ": tensor 'token_embd.weight' is missing or not a matrix"));
  }
  spec.vocab_size = int32_t(embedding->shape[0]);
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, gguf.GetInt(Key("embedding_length"), 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, gguf.GetInt(Key("context_length"), 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_layers, gguf.GetInt(Key("block_count"), 1, 1 << 16));
  SLUICE_ASSIGN_OR_RETURN(const Gqa gqa, ReadHeads(gguf, num_layers, spec.d_model));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                          gguf.GetIntPerLayer(Key("feed_forward_length"), num_layers, 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(const float eps, gguf.GetFloat(Key("attention.layer_norm_rms_epsilon")));
  const NormParams norm{.eps = eps};

  SLUICE_ASSIGN_OR_RETURN(const int32_t num_rotary, IntOr(gguf, "rope.dimension_count", gqa.head_dim));
  SLUICE_ASSIGN_OR_RETURN(RopeTable table, ReadRopeTable(gguf, num_rotary, spec.max_position));
  spec.rope_tables.push_back(std::move(table));
  // Converters of this architecture permute the rows of q and k so that the two halves of a pair are neighbours.
  const RopeSpec rope{.table = 0, .layout = RopeLayout::kInterleaved, .num_rotary = num_rotary};

  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> window, gguf.FindInt(Key("attention.sliding_window"), 0, kMax));
  SLUICE_ASSIGN_OR_RETURN(const float scale, PositiveOr(gguf, "attention.scale", 1 / std::sqrt(float(gqa.head_dim))));
  const auto has = [&](absl::string_view tensor) { return gguf.FindTensor(tensor) != nullptr; };
  for (int64_t i = 0; i < num_layers; ++i) {
    LayerSpec layer = MakeLayer(gqa, rope, norm, int32_t(widths[i]));
    AttentionSpec& attention = layer.attention;
    attention.scale = scale;
    if (window.value_or(0) > 0) attention.mask = {MaskKind::kWindow, int32_t(*window)};
    attention.q_bias = has("blk.0.attn_q.bias");
    attention.k_bias = has("blk.0.attn_k.bias");
    attention.v_bias = has("blk.0.attn_v.bias");
    attention.o_bias = has("blk.0.attn_output.bias");
    std::get<DenseFfn>(layer.ffn).bias = has("blk.0.ffn_up.bias");
    spec.layers.push_back(std::move(layer));
  }
  spec.final_norm = norm;
  spec.tied_embeddings = !has("output.weight");
  return spec;
}

absl::StatusOr<ModelSpec> LlamaFromConfig(const ConfigJson& config) {
  ModelSpec spec;
  spec.architecture = "llama";
  SLUICE_ASSIGN_OR_RETURN(spec.vocab_size, config.GetInt("vocab_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, config.GetInt("hidden_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, config.IntOr("max_position_embeddings", 1, kMax, 2048));
  SLUICE_ASSIGN_OR_RETURN(const int64_t num_layers, config.GetInt("num_hidden_layers", 1, 1 << 16));
  SLUICE_ASSIGN_OR_RETURN(const int64_t intermediate, config.GetInt("intermediate_size", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(const float eps, config.FloatOr("rms_norm_eps", 1e-6f));
  SLUICE_ASSIGN_OR_RETURN(const std::string activation, config.GetString("hidden_act"));
  if (activation != "silu") {
    return absl::UnimplementedError(
        absl::StrCat(config.name(), ": key 'hidden_act' is '", activation, "', which is not supported; expected silu"));
  }

  Gqa gqa;
  SLUICE_ASSIGN_OR_RETURN(gqa.num_heads, config.GetInt("num_attention_heads", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(gqa.num_kv_heads, config.IntOr("num_key_value_heads", 1, kMax, gqa.num_heads));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> head_dim, config.FindInt("head_dim", 1, kMax));
  if (!head_dim.has_value() && spec.d_model % gqa.num_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'hidden_size' is ", spec.d_model,
                                                   ", expected a multiple of 'num_attention_heads' ", gqa.num_heads,
                                                   " where 'head_dim' is missing"));
  }
  gqa.head_dim = int32_t(head_dim.value_or(spec.d_model / gqa.num_heads));
  gqa.value_head_dim = gqa.head_dim;
  if (gqa.head_dim % 2 != 0 || gqa.head_dim > (1 << 16)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.name(), ": the head dimension is ", gqa.head_dim, ", expected an even number"));
  }

  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope_config, ReadRopeConfig(config, 1e4f, spec.max_position));
  spec.rope_tables.push_back(MakeRopeTable(rope_config.theta, gqa.head_dim, rope_config.scaling));
  const RopeSpec rope{.table = 0, .layout = RopeLayout::kHalfSplit, .num_rotary = gqa.head_dim};

  const NormParams norm{.eps = eps};
  LayerSpec layer = MakeLayer(gqa, rope, norm, int32_t(intermediate));
  SLUICE_ASSIGN_OR_RETURN(const bool attention_bias, config.BoolOr("attention_bias", false));
  AttentionSpec& attention = layer.attention;
  attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = attention_bias;
  SLUICE_ASSIGN_OR_RETURN(std::get<DenseFfn>(layer.ffn).bias, config.BoolOr("mlp_bias", false));
  spec.layers.assign(num_layers, layer);
  spec.final_norm = norm;
  SLUICE_ASSIGN_OR_RETURN(spec.tied_embeddings, config.BoolOr("tie_word_embeddings", false));
  return spec;
}

}  // namespace sluice
