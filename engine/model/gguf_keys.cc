#include "engine/model/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

constexpr int32_t kMax = INT32_MAX;

// A list of f32 factors above 0, as a tensor.
absl::StatusOr<std::vector<float>> ReadFactors(const Gguf& gguf, const TensorView& tensor, int64_t expected) {
  if (tensor.type != TensorType::kF32 || tensor.num_elements() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(gguf.name(), ": tensor ", Quote(tensor.name), " has ", tensor.num_elements(), " elements of type ",
                     TensorTypeName(tensor.type), ", expected ", expected, " of type F32"));
  }
  std::vector<float> factors(static_cast<size_t>(expected));
  std::memcpy(factors.data(), tensor.data.data(), factors.size() * sizeof(float));
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] > 0 && std::isfinite(factors[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(gguf.name(), ": tensor ", Quote(tensor.name), " holds ", factors[i],
                                                   " at ", i, ", expected finite numbers above 0"));
  }
  return factors;
}

absl::StatusOr<LongRope> ReadLongRope(const GgufKeys& keys, int32_t max_position) {
  LongRope longrope;
  for (const auto& [name, list] : {std::pair("rope_factors_short.weight", &longrope.short_factor),
                                   std::pair("rope_factors_long.weight", &longrope.long_factor)}) {
    const TensorView* tensor = keys.gguf().FindTensor(name);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(keys.gguf().name(), ": tensor ", Quote(name), " is missing; longrope needs it"));
    }
    SLUICE_ASSIGN_OR_RETURN(*list, ReadFactors(keys.gguf(), *tensor, tensor->num_elements()));
  }
  SLUICE_ASSIGN_OR_RETURN(longrope.original_max_position,
                          keys.IntOr("rope.scaling.original_context_length", 1, kMax, max_position));
  SLUICE_ASSIGN_OR_RETURN(longrope.factor, keys.FindPositive("rope.scaling.factor"));
  const double factor = double(max_position) / longrope.original_max_position;
  SLUICE_ASSIGN_OR_RETURN(
      longrope.attention_factor,
      keys.PositiveOr("rope.scaling.attn_factor", float(LongRopeMagnitude(factor, longrope.original_max_position))));
  return longrope;
}

absl::StatusOr<YarnRope> ReadYarn(const GgufKeys& keys, float factor, int32_t max_position) {
  YarnRope yarn{.factor = factor};
  SLUICE_ASSIGN_OR_RETURN(yarn.original_max_position,
                          keys.IntOr("rope.scaling.original_context_length", 1, kMax, max_position));
  SLUICE_ASSIGN_OR_RETURN(yarn.beta_fast, keys.PositiveOr("rope.scaling.yarn_beta_fast", yarn.beta_fast));
  SLUICE_ASSIGN_OR_RETURN(yarn.beta_slow, keys.PositiveOr("rope.scaling.yarn_beta_slow", yarn.beta_slow));
  SLUICE_ASSIGN_OR_RETURN(yarn.attention_factor, keys.FindPositive("rope.scaling.yarn_attn_factor"));
  // The other key of nearly the same name multiplies whatever the rest gives.
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> times, keys.FindPositive("rope.scaling.attn_factor"));
  if (times.has_value()) {
    yarn.attention_factor = *times * yarn.attention_factor.value_or(float(YarnMagnitude(factor, 1)));
  }
  return yarn;
}

absl::StatusOr<RopeScaling> ReadScaling(const GgufKeys& keys, int32_t max_position) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<absl::string_view> type,
                          keys.gguf().FindString(keys.Key("rope.scaling.type")));
  if (type == "longrope" || (!type.has_value() && keys.HasTensor("rope_factors_long.weight"))) {
    return ReadLongRope(keys, max_position);
  }
  // rope.scale_linear is how files older than rope.scaling.* say "linear".
  SLUICE_ASSIGN_OR_RETURN(const float old_factor, keys.PositiveOr("rope.scale_linear", 1));
  SLUICE_ASSIGN_OR_RETURN(const float factor, keys.PositiveOr("rope.scaling.factor", old_factor));
  if (!type.has_value()) return factor == 1 ? RopeScaling{} : RopeScaling{LinearRope{factor}};
  if (*type == "none") return RopeScaling{};
  if (*type == "linear") {
    LinearRope linear{factor};
    if (keys.Has("rope.scaling.original_context_length")) {
      SLUICE_ASSIGN_OR_RETURN(linear.original_max_position,
                              keys.GetInt("rope.scaling.original_context_length", 1, kMax));
    }
    return linear;
  }
  if (*type == "yarn") return ReadYarn(keys, factor, max_position);
  return absl::InvalidArgumentError(absl::StrCat(keys.gguf().name(), ": key ", Quote(keys.Key("rope.scaling.type")),
                                                 " is ", Quote(*type), "; known are none, linear, yarn and longrope"));
}

}  // namespace

std::string GgufKeys::Key(absl::string_view key) const { return absl::StrCat(architecture_, ".", key); }

absl::StatusOr<int32_t> GgufKeys::GetInt(absl::string_view key, int32_t min, int32_t max) const {
  SLUICE_ASSIGN_OR_RETURN(const int64_t value, gguf_.GetInt(Key(key), min, max));
  return int32_t(value);
}

absl::StatusOr<int32_t> GgufKeys::IntOr(absl::string_view key, int32_t min, int32_t max, int32_t otherwise) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, gguf_.FindInt(Key(key), min, max));
  return int32_t(value.value_or(otherwise));
}

absl::StatusOr<bool> GgufKeys::BoolOr(absl::string_view key, bool otherwise) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<bool> value, gguf_.FindBool(Key(key)));
  return value.value_or(otherwise);
}

absl::StatusOr<std::optional<float>> GgufKeys::FindPositive(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> value, gguf_.FindFloat(Key(key)));
  if (!value.has_value() || (*value > 0 && std::isfinite(*value))) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(gguf_.name(), ": key ", Quote(Key(key)), " is ", *value, ", expected a finite number above 0"));
}

absl::StatusOr<float> GgufKeys::GetPositive(absl::string_view key) const {
  SLUICE_RETURN_IF_ERROR(gguf_.GetFloat(Key(key)).status());
  return PositiveOr(key, 1);
}

absl::StatusOr<float> GgufKeys::PositiveOr(absl::string_view key, float otherwise) const {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<float> value, FindPositive(key));
  return value.value_or(otherwise);
}

absl::StatusOr<int32_t> GgufKeys::SameInAllLayers(absl::string_view key, int64_t num_layers) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, gguf_.GetIntPerLayer(Key(key), num_layers, 1, kMax));
  for (int64_t value : values) {
    if (value == values[0]) continue;
    return Unsupported(
        key, absl::StrCat("differs between layers (", values[0], " and ", value, "), which is not supported"));
  }
  return int32_t(values[0]);
}

absl::Status GgufKeys::Unsupported(absl::string_view key, absl::string_view what) const {
  return absl::UnimplementedError(absl::StrCat(gguf_.name(), ": key ", Quote(Key(key)), " ", what));
}

absl::StatusOr<ModelSpec> ReadGgufSizes(const GgufKeys& keys) {
  SLUICE_ASSIGN_OR_RETURN(const bool causal, keys.BoolOr("attention.causal", true));
  if (!causal) return keys.Unsupported("attention.causal", "is false: models that look ahead do not generate text");
  ModelSpec spec;
  spec.architecture = std::string(keys.architecture());
  const TensorView* embedding = keys.gguf().FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] > kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(keys.gguf().name(), ": tensor 'token_embd.weight' is missing or not a matrix"));
  }
  spec.vocab_size = int32_t(embedding->shape[0]);
  SLUICE_ASSIGN_OR_RETURN(spec.d_model, keys.GetInt("embedding_length", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(spec.max_position, keys.GetInt("context_length", 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_layers, keys.GetInt("block_count", 1, 1 << 16));
  spec.layers.resize(size_t(num_layers));
  spec.tied_embeddings = !keys.HasTensor("output.weight");
  return spec;
}

absl::StatusOr<Gqa> ReadHeads(const GgufKeys& keys, int64_t num_layers, int32_t d_model) {
  Gqa gqa;
  SLUICE_ASSIGN_OR_RETURN(gqa.num_heads, keys.SameInAllLayers("attention.head_count", num_layers));
  gqa.num_kv_heads = gqa.num_heads;
  if (keys.Has("attention.head_count_kv")) {
    SLUICE_ASSIGN_OR_RETURN(gqa.num_kv_heads, keys.SameInAllLayers("attention.head_count_kv", num_layers));
  }
  if (d_model % gqa.num_heads != 0 && !keys.Has("attention.key_length")) {
    return absl::InvalidArgumentError(absl::StrCat(keys.gguf().name(), ": key ", Quote(keys.Key("embedding_length")),
                                                   " is ", d_model, ", expected a multiple of ",
                                                   Quote(keys.Key("attention.head_count")), " ", gqa.num_heads,
                                                   " where ", Quote(keys.Key("attention.key_length")), " is missing"));
  }
  SLUICE_ASSIGN_OR_RETURN(gqa.head_dim, keys.IntOr("attention.key_length", 1, kMax, d_model / gqa.num_heads));
  SLUICE_ASSIGN_OR_RETURN(gqa.value_head_dim, keys.IntOr("attention.value_length", 1, kMax, gqa.head_dim));
  return gqa;
}

absl::StatusOr<RopeConfig> ReadRopeConfig(const GgufKeys& keys, int32_t max_position) {
  RopeConfig rope;
  SLUICE_ASSIGN_OR_RETURN(rope.theta, keys.PositiveOr("rope.freq_base", 1e4f));
  if (!(rope.theta > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(keys.gguf().name(), ": key ", Quote(keys.Key("rope.freq_base")),
                                                   " is ", rope.theta, ", expected a number above 1"));
  }
  SLUICE_ASSIGN_OR_RETURN(rope.scaling, ReadScaling(keys, max_position));
  return rope;
}

absl::StatusOr<RopeSpec> AddRope(const GgufKeys& keys, const RopeConfig& rope, int32_t head_dim, RopeLayout layout,
                                 ModelSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_rotary, keys.IntOr("rope.dimension_count", 1, kMax, head_dim));
  SLUICE_ASSIGN_OR_RETURN(const RopeSpec added, AddRope(keys.gguf().name(), rope, num_rotary, layout, spec));
  const TensorView* divisors = keys.gguf().FindTensor("rope_freqs.weight");
  if (divisors == nullptr) return added;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> factors, ReadFactors(keys.gguf(), *divisors, num_rotary / 2));
  RopeTable& table = spec->rope_tables.back();
  for (size_t i = 0; i < factors.size(); ++i) {
    table.inv_freq[i] /= factors[i];
    spec->rope_scaling_factor = std::max(spec->rope_scaling_factor, factors[i]);
  }
  return added;
}

absl::StatusOr<ModelSpec> ReadGgufDecoder(const GgufKeys& keys, RopeLayout layout) {
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, ReadGgufSizes(keys));
  const int64_t num_layers = int64_t(spec.layers.size());
  SLUICE_ASSIGN_OR_RETURN(const Gqa gqa, ReadHeads(keys, num_layers, spec.d_model));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                          keys.gguf().GetIntPerLayer(keys.Key("feed_forward_length"), num_layers, 1, kMax));
  SLUICE_ASSIGN_OR_RETURN(const float eps, keys.GetPositive("attention.layer_norm_rms_epsilon"));
  SLUICE_ASSIGN_OR_RETURN(const RopeConfig rope, ReadRopeConfig(keys, spec.max_position));
  LayerSpec layer;
  layer.pre_attn = layer.pre_ffn = spec.final_norm = NormParams{.eps = eps};
  AttentionSpec& attention = layer.attention;
  attention.kind = gqa;
  SLUICE_ASSIGN_OR_RETURN(attention.rope, AddRope(keys, rope, gqa.head_dim, layout, &spec));
  SLUICE_ASSIGN_OR_RETURN(attention.scale, keys.PositiveOr("attention.scale", 1 / std::sqrt(float(gqa.head_dim))));
  attention.q_bias = keys.HasTensor("blk.0.attn_q.bias");
  attention.k_bias = keys.HasTensor("blk.0.attn_k.bias");
  attention.v_bias = keys.HasTensor("blk.0.attn_v.bias");
  attention.o_bias = keys.HasTensor("blk.0.attn_output.bias");
  for (int64_t i = 0; i < num_layers; ++i) {
    layer.ffn = DenseFfn{.intermediate_size = int32_t(widths[size_t(i)]), .bias = keys.HasTensor("blk.0.ffn_up.bias")};
    spec.layers[size_t(i)] = layer;
  }
  return spec;
}

absl::Status SetMasksByPattern(const GgufKeys& keys, const AttentionMask& mask, int32_t pattern, ModelSpec* spec) {
  SLUICE_ASSIGN_OR_RETURN(pattern, keys.IntOr("attention.sliding_window_pattern", 1, kMax, pattern));
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    if (int64_t(i + 1) % pattern != 0) spec->layers[i].attention.mask = mask;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<MoeFfn>> ReadGgufMoe(const GgufKeys& keys, size_t num_layers) {
  SLUICE_ASSIGN_OR_RETURN(const int32_t num_experts, keys.IntOr("expert_count", 0, kMax, 0));
  if (num_experts == 0) return std::nullopt;
  MoeFfn moe;
  moe.routing.num_experts = num_experts;
  SLUICE_ASSIGN_OR_RETURN(moe.routing.num_experts_per_token, keys.GetInt("expert_used_count", 1, kMax));
  const bool own_width = keys.Has("expert_feed_forward_length");
  SLUICE_ASSIGN_OR_RETURN(
      moe.expert_intermediate_size,
      keys.SameInAllLayers(own_width ? "expert_feed_forward_length" : "feed_forward_length", int64_t(num_layers)));
  return std::optional<MoeFfn>(std::move(moe));
}

}  // namespace sluice
