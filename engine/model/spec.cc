#include "engine/model/spec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/tensor_roles.h"

namespace sluice {
namespace {

// Far above any published model, and small enough that no product or sum of sizes below leaves 64 bits.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxWidth = 1 << 18;
constexpr int64_t kMaxFfnWidth = 1 << 20;
constexpr int64_t kMaxHeads = 1 << 12;
constexpr int64_t kMaxHeadDim = 1 << 12;
constexpr int64_t kMaxExperts = 1 << 12;
constexpr int64_t kMaxLayers = 1 << 10;

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat("model description: ", args...));
}

absl::Status InRange(absl::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return Bad(field, " is ", value, ", expected ", min, " to ", max);
}

absl::Status Positive(absl::string_view field, float value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return Bad(field, " is ", value, ", expected a finite number above 0");
}

absl::Status Finite(absl::string_view field, float value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return Bad(field, " is ", value, ", expected a finite number");
}

absl::Status CheckNorm(absl::string_view field, const NormParams& norm) {
  SLUICE_RETURN_IF_ERROR(Positive(absl::StrCat(field, ".eps"), norm.eps));
  return Finite(absl::StrCat(field, ".weight_offset"), norm.weight_offset);
}

absl::Status CheckGqa(const std::string& at, const Gqa& gqa) {
  SLUICE_RETURN_IF_ERROR(InRange(at + ".num_heads", gqa.num_heads, 1, kMaxHeads));
  SLUICE_RETURN_IF_ERROR(InRange(at + ".num_kv_heads", gqa.num_kv_heads, 1, gqa.num_heads));
  if (gqa.num_heads % gqa.num_kv_heads != 0) {
    return Bad(at, ".num_heads is ", gqa.num_heads, ", expected a multiple of num_kv_heads ", gqa.num_kv_heads);
  }
  SLUICE_RETURN_IF_ERROR(InRange(at + ".head_dim", gqa.head_dim, 1, kMaxHeadDim));
  SLUICE_RETURN_IF_ERROR(InRange(at + ".value_head_dim", gqa.value_head_dim, 1, kMaxHeadDim));
  if (gqa.qk_norm.kind == QkNormKind::kNone) return absl::OkStatus();
  return CheckNorm(at + ".qk_norm", gqa.qk_norm.norm);
}

absl::Status CheckMla(const std::string& at, const Mla& mla) {
  SLUICE_RETURN_IF_ERROR(InRange(at + ".num_heads", mla.num_heads, 1, kMaxHeads));
  if (mla.q_lora_rank.has_value()) {
    SLUICE_RETURN_IF_ERROR(InRange(at + ".q_lora_rank", *mla.q_lora_rank, 1, kMaxWidth));
  }
  SLUICE_RETURN_IF_ERROR(InRange(at + ".kv_lora_rank", mla.kv_lora_rank, 1, kMaxWidth));
  SLUICE_RETURN_IF_ERROR(InRange(at + ".qk_nope_head_dim", mla.qk_nope_head_dim, 1, kMaxHeadDim));
  SLUICE_RETURN_IF_ERROR(InRange(at + ".qk_rope_head_dim", mla.qk_rope_head_dim, 1, kMaxHeadDim));
  SLUICE_RETURN_IF_ERROR(InRange(at + ".v_head_dim", mla.v_head_dim, 1, kMaxHeadDim));
  return Positive(at + ".latent_norm_eps", mla.latent_norm_eps);
}

absl::Status CheckRope(const std::string& at, const ModelSpec& spec, const AttentionSpec& attention) {
  const RopeSpec& rope = *attention.rope;
  if (rope.table < 0 || size_t(rope.table) >= spec.rope_tables.size()) {
    return Bad(at, ".table is ", rope.table, ", but there are ", spec.rope_tables.size(), " rope tables");
  }
  const Gqa* gqa = std::get_if<Gqa>(&attention.kind);
  const int32_t limit = gqa != nullptr ? gqa->head_dim : std::get<Mla>(attention.kind).qk_rope_head_dim;
  if (rope.num_rotary < 2 || rope.num_rotary > limit || rope.num_rotary % 2 != 0) {
    return Bad(at, ".num_rotary is ", rope.num_rotary, ", expected an even number from 2 to the head's ", limit);
  }
  const size_t pairs = spec.rope_tables[rope.table].inv_freq.size();
  if (pairs != size_t(rope.num_rotary) / 2) {
    return Bad(at, ".num_rotary is ", rope.num_rotary, ", but its rope table has ", pairs, " pairs");
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(const std::string& at, const ModelSpec& spec, const AttentionSpec& attention) {
  if (const Gqa* gqa = std::get_if<Gqa>(&attention.kind)) {
    SLUICE_RETURN_IF_ERROR(CheckGqa(at, *gqa));
  } else {
    SLUICE_RETURN_IF_ERROR(CheckMla(at, std::get<Mla>(attention.kind)));
    // Kept out of the operations until a model asks for them.
    if (!attention.rope.has_value()) return Bad(at, ".rope is missing, expected one with latent attention");
    if (attention.sinks || attention.softcap.has_value() || attention.query_temperature.has_value()) {
      return Bad(at, " has sinks, a softcap or a query temperature, expected none of them with latent attention");
    }
  }
  if (attention.rope.has_value()) SLUICE_RETURN_IF_ERROR(CheckRope(at + ".rope", spec, attention));
  SLUICE_RETURN_IF_ERROR(Positive(at + ".scale", attention.scale));
  if (attention.softcap.has_value()) SLUICE_RETURN_IF_ERROR(Positive(at + ".softcap", *attention.softcap));
  if (attention.mask.kind != MaskKind::kFull) {
    SLUICE_RETURN_IF_ERROR(InRange(at + ".mask.size", attention.mask.size, 1, kMaxPosition));
  }
  if (attention.query_temperature.has_value()) {
    SLUICE_RETURN_IF_ERROR(Positive(at + ".query_temperature.floor", attention.query_temperature->floor));
    SLUICE_RETURN_IF_ERROR(Finite(at + ".query_temperature.coef", attention.query_temperature->coef));
  }
  return absl::OkStatus();
}

absl::Status CheckRopeTable(const std::string& at, const RopeTable& table) {
  SLUICE_RETURN_IF_ERROR(Positive(at + ".attention_factor", table.attention_factor));
  for (float f : table.inv_freq) SLUICE_RETURN_IF_ERROR(Positive(at + ".inv_freq", f));
  if (const auto* rule = std::get_if<LongRopeRule>(&table.length_rule)) {
    SLUICE_RETURN_IF_ERROR(
        InRange(at + ".length_rule.original_max_position", rule->original_max_position, 1, INT32_MAX));
    if (rule->long_inv_freq.size() != table.inv_freq.size()) {
      return Bad(at, ".length_rule.long_inv_freq has ", rule->long_inv_freq.size(), " entries, expected ",
                 table.inv_freq.size());
    }
    for (float f : rule->long_inv_freq) SLUICE_RETURN_IF_ERROR(Positive(at + ".length_rule.long_inv_freq", f));
  }
  if (const auto* rule = std::get_if<DynamicNtkRule>(&table.length_rule)) {
    SLUICE_RETURN_IF_ERROR(Positive(at + ".length_rule.base", rule->base));
    SLUICE_RETURN_IF_ERROR(Positive(at + ".length_rule.factor", rule->factor));
    SLUICE_RETURN_IF_ERROR(InRange(at + ".length_rule.max_position", rule->max_position, 1, kMaxPosition));
    if (table.inv_freq.size() < 2) return Bad(at, ".inv_freq has 1 entry, expected more with a dynamic base");
  }
  return absl::OkStatus();
}

absl::Status CheckActivation(const std::string& at, const FfnActivation& activation) {
  if (activation.kind != ActivationKind::kSwigluOai) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(Positive(at + ".alpha", activation.alpha));
  return Positive(at + ".limit", activation.limit);
}

absl::Status CheckGroups(const std::string& at, const MoeFfn& moe) {
  const MoeGroups& groups = *moe.routing.groups;
  SLUICE_RETURN_IF_ERROR(InRange(at + ".num_groups", groups.num_groups, 1, moe.routing.num_experts));
  if (moe.routing.num_experts % groups.num_groups != 0) {
    return Bad(at, ".num_groups is ", groups.num_groups, ", expected a divisor of num_experts ",
               moe.routing.num_experts);
  }
  const int32_t per_group = moe.routing.num_experts / groups.num_groups;
  if (groups.score == MoeGroupScore::kTop2Sum && per_group < 2) {
    return Bad(at, ".num_groups is ", groups.num_groups, ", which leaves fewer than 2 experts in a group");
  }
  SLUICE_RETURN_IF_ERROR(InRange(at + ".num_kept", groups.num_kept, 1, groups.num_groups));
  if (int64_t{groups.num_kept} * per_group < moe.routing.num_experts_per_token) {
    return Bad(at, ".num_kept is ", groups.num_kept, ", which leaves ", int64_t{groups.num_kept} * per_group,
               " experts to choose ", moe.routing.num_experts_per_token, " from");
  }
  return absl::OkStatus();
}

absl::Status CheckMoe(const std::string& at, const MoeFfn& moe) {
  SLUICE_RETURN_IF_ERROR(InRange(at + ".num_experts", moe.routing.num_experts, 1, kMaxExperts));
  SLUICE_RETURN_IF_ERROR(
      InRange(at + ".num_experts_per_token", moe.routing.num_experts_per_token, 1, moe.routing.num_experts));
  SLUICE_RETURN_IF_ERROR(InRange(at + ".expert_intermediate_size", moe.expert_intermediate_size, 1, kMaxFfnWidth));
  SLUICE_RETURN_IF_ERROR(CheckActivation(at + ".activation", moe.activation));
  if (moe.routing.groups.has_value()) SLUICE_RETURN_IF_ERROR(CheckGroups(at + ".groups", moe));
  if (!(std::isfinite(moe.routing.renormalize_eps) && moe.routing.renormalize_eps >= 0)) {
    return Bad(at, ".renormalize_eps is ", moe.routing.renormalize_eps, ", expected a finite number of at least 0");
  }
  SLUICE_RETURN_IF_ERROR(Positive(at + ".routed_scale", moe.routing.routed_scale));
  if (moe.shared_intermediate_size.has_value()) {
    return InRange(at + ".shared_intermediate_size", *moe.shared_intermediate_size, 1, kMaxFfnWidth);
  }
  return absl::OkStatus();
}

absl::Status CheckLayer(const std::string& at, const ModelSpec& spec, const LayerSpec& layer) {
  if (layer.pre_attn.has_value()) SLUICE_RETURN_IF_ERROR(CheckNorm(at + ".pre_attn", *layer.pre_attn));
  if (layer.post_attn.has_value()) SLUICE_RETURN_IF_ERROR(CheckNorm(at + ".post_attn", *layer.post_attn));
  if (layer.pre_ffn.has_value()) SLUICE_RETURN_IF_ERROR(CheckNorm(at + ".pre_ffn", *layer.pre_ffn));
  if (layer.post_ffn.has_value()) SLUICE_RETURN_IF_ERROR(CheckNorm(at + ".post_ffn", *layer.post_ffn));
  SLUICE_RETURN_IF_ERROR(InRange(at + ".kv_group", layer.kv_group, 0, kMaxLayers));
  SLUICE_RETURN_IF_ERROR(CheckAttention(at + ".attention", spec, layer.attention));
  if (const DenseFfn* ffn = std::get_if<DenseFfn>(&layer.ffn)) {
    SLUICE_RETURN_IF_ERROR(InRange(at + ".ffn.intermediate_size", ffn->intermediate_size, 1, kMaxFfnWidth));
    return CheckActivation(at + ".ffn.activation", ffn->activation);
  }
  return CheckMoe(at + ".ffn", std::get<MoeFfn>(layer.ffn));
}

}  // namespace

absl::Status ValidateModelSpec(const ModelSpec& spec) {
  SLUICE_RETURN_IF_ERROR(InRange("vocab_size", spec.vocab_size, 1, kMaxVocab));
  SLUICE_RETURN_IF_ERROR(InRange("d_model", spec.d_model, 1, kMaxWidth));
  SLUICE_RETURN_IF_ERROR(InRange("max_position", spec.max_position, 1, kMaxPosition));
  SLUICE_RETURN_IF_ERROR(InRange("longest_position", spec.longest_position, 0, kMaxPosition));
  SLUICE_RETURN_IF_ERROR(Positive("embedding_scale", spec.embedding_scale));
  SLUICE_RETURN_IF_ERROR(InRange("number of layers", int64_t(spec.layers.size()), 1, kMaxLayers));
  for (size_t t = 0; t < spec.rope_tables.size(); ++t) {
    SLUICE_RETURN_IF_ERROR(CheckRopeTable(absl::StrCat("rope_tables[", t, "]"), spec.rope_tables[t]));
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(CheckLayer(absl::StrCat("layers[", i, "]"), spec, spec.layers[i]));
  }
  SLUICE_RETURN_IF_ERROR(CheckNorm("final_norm", spec.final_norm));
  SLUICE_RETURN_IF_ERROR(Positive("logit_scale", spec.logit_scale));
  if (spec.final_softcap.has_value()) SLUICE_RETURN_IF_ERROR(Positive("final_softcap", *spec.final_softcap));
  return absl::OkStatus();
}

int64_t KvValuesPerToken(const LayerSpec& layer) {
  if (const Gqa* gqa = std::get_if<Gqa>(&layer.attention.kind)) {
    return int64_t{gqa->num_kv_heads} * (gqa->head_dim + gqa->value_head_dim);
  }
  const Mla& mla = std::get<Mla>(layer.attention.kind);
  return int64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim;
}

int32_t LongestContext(const ModelSpec& spec) {
  double longest = spec.rope_tables.empty() ? 0 : double(kMaxPosition);
  for (const RopeTable& table : spec.rope_tables) {
    const auto* rule = std::get_if<DynamicNtkRule>(&table.length_rule);
    longest = std::min(longest, rule == nullptr ? 0 : std::floor(double{rule->factor} * rule->max_position));
  }
  return std::max({spec.max_position, spec.longest_position, int32_t(longest)});
}

int64_t KvBytes(const ModelSpec& spec, int64_t num_tokens, int32_t bytes_per_value) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionMask& mask = layer.attention.mask;
    const int64_t kept = mask.kind == MaskKind::kFull ? num_tokens : std::min<int64_t>(num_tokens, mask.size);
    bytes += KvValuesPerToken(layer) * kept * bytes_per_value;
  }
  return bytes;
}

int64_t NumParameters(const ModelSpec& spec) {
  int64_t parameters = 0;
  for (const ExpectedTensor& tensor : ExpectedTensors(spec)) parameters += tensor.num_elements();
  return parameters;
}

}  // namespace sluice
