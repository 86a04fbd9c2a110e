#include "tests/model/spec_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace sluice::testing {
namespace {

std::string Text(float value) { return absl::StrFormat("%.9g", value); }

std::string Text(const std::optional<float>& value) { return value.has_value() ? Text(*value) : "none"; }

std::string Text(const NormParams& norm) {
  return absl::StrCat(norm.kind == NormKind::kRms ? "rms" : "layer", " eps ", Text(norm.eps), " + ",
                      Text(norm.weight_offset));
}

std::string Text(const std::optional<NormParams>& norm) { return norm.has_value() ? Text(*norm) : "none"; }

std::string Text(const FfnActivation& activation) {
  return absl::StrCat("act ", int(activation.kind), " ", Text(activation.alpha), " ", Text(activation.limit));
}

std::string Text(const std::vector<float>& values) {
  return absl::StrJoin(values, " ", [](std::string* out, float value) { absl::StrAppend(out, Text(value)); });
}

std::string Text(const Gqa& gqa) {
  return absl::StrCat("gqa ", gqa.num_heads, "/", gqa.num_kv_heads, " x ", gqa.head_dim, ", ", gqa.value_head_dim,
                      ", qk norm ", int(gqa.qk_norm.kind), " ", Text(gqa.qk_norm.norm), " after ",
                      gqa.qk_norm.after_rope);
}

std::string Text(const Mla& mla) {
  return absl::StrCat("mla ", mla.num_heads, " q ", mla.q_lora_rank.value_or(0), " kv ", mla.kv_lora_rank, " nope ",
                      mla.qk_nope_head_dim, " rope ", mla.qk_rope_head_dim, " v ", mla.v_head_dim, " eps ",
                      Text(mla.latent_norm_eps));
}

std::string Text(const AttentionSpec& attention) {
  std::string text = std::visit([](const auto& kind) { return Text(kind); }, attention.kind);
  if (attention.rope.has_value()) {
    absl::StrAppend(&text, ", rope ", attention.rope->table, " layout ", int(attention.rope->layout), " of ",
                    attention.rope->num_rotary);
  }
  absl::StrAppend(&text, ", mask ", int(attention.mask.kind), " ", attention.mask.size, ", scale ",
                  Text(attention.scale), ", softcap ", Text(attention.softcap), ", biases ", attention.q_bias,
                  attention.k_bias, attention.v_bias, attention.o_bias, ", sinks ", attention.sinks);
  if (attention.query_temperature.has_value()) {
    absl::StrAppend(&text, ", temperature ", Text(attention.query_temperature->floor), " ",
                    Text(attention.query_temperature->coef));
  }
  return text;
}

std::string Text(const DenseFfn& ffn) {
  return absl::StrCat("dense ", ffn.intermediate_size, " gated ", ffn.gated, " ", Text(ffn.activation), " bias ",
                      ffn.bias);
}

std::string Text(const MoeFfn& moe) {
  const MoeRouting& routing = moe.routing;
  std::string text =
      absl::StrCat("moe ", routing.num_experts_per_token, " of ", routing.num_experts, " x ",
                   moe.expert_intermediate_size, " score ", int(routing.score), " renormalize ", routing.renormalize,
                   " ", Text(routing.renormalize_eps), " scale ", Text(routing.routed_scale), " ", Text(moe.activation),
                   " selection bias ", moe.selection_bias, " on input ", moe.weight_on_input, " biases ",
                   moe.router_bias, moe.expert_bias, " shared ", moe.shared_intermediate_size.value_or(0));
  if (routing.groups.has_value()) {
    absl::StrAppend(&text, " groups ", routing.groups->num_kept, " of ", routing.groups->num_groups, " by ",
                    int(routing.groups->score));
  }
  return text;
}

std::string Text(const LayerSpec& layer) {
  return absl::StrCat("norms ", Text(layer.pre_attn), "; ", Text(layer.post_attn), "; ", Text(layer.pre_ffn), "; ",
                      Text(layer.post_ffn), "\n    ", Text(layer.attention), "\n    ",
                      std::visit([](const auto& ffn) { return Text(ffn); }, layer.ffn), ", kv group ", layer.kv_group);
}

std::string Text(const RopeTable& table) {
  std::string text = absl::StrCat("factor ", Text(table.attention_factor), ": ", Text(table.inv_freq));
  if (const auto* longer = std::get_if<LongRopeRule>(&table.length_rule)) {
    absl::StrAppend(&text, "; beyond ", longer->original_max_position, ": ", Text(longer->long_inv_freq));
  }
  if (const auto* dynamic = std::get_if<DynamicNtkRule>(&table.length_rule)) {
    absl::StrAppend(&text, "; dynamic ", Text(dynamic->base), " ", Text(dynamic->factor), " ", dynamic->max_position);
  }
  return text;
}

}  // namespace

std::string SpecText(const ModelSpec& spec) {
  std::string text = absl::StrCat(spec.architecture, ": vocab ", spec.vocab_size, ", width ", spec.d_model,
                                  ", positions ", spec.max_position, " kind ", int(spec.position_embedding),
                                  ", embedding scale ", Text(spec.embedding_scale), ", tied ", spec.tied_embeddings,
                                  ", logit scale ", Text(spec.logit_scale), ", softcap ", Text(spec.final_softcap),
                                  ", final norm ", Text(spec.final_norm), "\n");
  for (const RopeTable& table : spec.rope_tables) absl::StrAppend(&text, "table ", Text(table), "\n");
  size_t first = 0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string layer = Text(spec.layers[i]);
    if (i + 1 < spec.layers.size() && Text(spec.layers[i + 1]) == layer) continue;
    absl::StrAppend(&text, "layers ", first, " to ", i, ": ", layer, "\n");
    first = i + 1;
  }
  return text;
}

}  // namespace sluice::testing
