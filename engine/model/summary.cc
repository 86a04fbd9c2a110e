#include "engine/model/summary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/model/kv_groups.h"
#include "engine/model/tensor_roles.h"

namespace sluice {
namespace {

// Equal lines with how often each came, in order of first appearance.
class Tally {
 public:
  void Add(std::string line) {
    for (auto& [known, count] : lines_) {
      if (known == line) return void(++count);
    }
    lines_.emplace_back(std::move(line), 1);
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const auto& [line, count] : lines_) lines.push_back(absl::StrCat(count, " x ", line));
    return lines;
  }

 private:
  std::vector<std::pair<std::string, int>> lines_;
};

std::string Describe(const AttentionMask& mask) {
  switch (mask.kind) {
    case MaskKind::kFull:
      return "";
    case MaskKind::kWindow:
      return absl::StrCat(", window ", mask.size);
    case MaskKind::kChunk:
      return absl::StrCat(", chunk ", mask.size);
  }
  return "";
}

std::string Describe(const QkNormSpec& norm) {
  switch (norm.kind) {
    case QkNormKind::kNone:
      return "";
    case QkNormKind::kPerHead:
      return ", qk norm";
    case QkNormKind::kFullWidth:
      return ", qk norm over all heads";
    case QkNormKind::kL2PerHead:
      return ", qk norm without weights";
  }
  return "";
}

std::string Describe(const AttentionSpec& attention) {
  std::string text;
  if (const Gqa* gqa = std::get_if<Gqa>(&attention.kind)) {
    const char* kind = gqa->num_kv_heads == gqa->num_heads ? "mha" : gqa->num_kv_heads == 1 ? "mqa" : "gqa";
    text =
        absl::StrCat(kind, ": ", gqa->num_heads, " heads, ", gqa->num_kv_heads, " kv heads, head dim ", gqa->head_dim);
    if (gqa->value_head_dim != gqa->head_dim) absl::StrAppend(&text, ", value dim ", gqa->value_head_dim);
    absl::StrAppend(&text, Describe(gqa->qk_norm));
  } else {
    const Mla& mla = std::get<Mla>(attention.kind);
    text = absl::StrCat("mla: ", mla.num_heads, " heads, latent ", mla.kv_lora_rank, " + rope ", mla.qk_rope_head_dim);
    if (mla.q_lora_rank.has_value()) absl::StrAppend(&text, ", q latent ", *mla.q_lora_rank);
  }
  absl::StrAppend(&text, Describe(attention.mask));
  if (!attention.rope.has_value()) absl::StrAppend(&text, ", no rope");
  if (attention.softcap.has_value()) absl::StrAppend(&text, ", softcap ", *attention.softcap);
  if (attention.sinks) absl::StrAppend(&text, ", sinks");
  if (attention.q_bias || attention.k_bias || attention.v_bias || attention.o_bias) absl::StrAppend(&text, ", biases");
  return text;
}

// Nothing for the usual one.
std::string Describe(const FfnActivation& activation) {
  switch (activation.kind) {
    case ActivationKind::kSilu:
      return "";
    case ActivationKind::kGeluTanh:
      return ", gelu by tanh";
    case ActivationKind::kGeluErf:
      return ", gelu";
    case ActivationKind::kSwigluOai:
      return absl::StrCat(", swiglu limited to ", activation.limit);
  }
  return "";
}

std::string Describe(const std::variant<DenseFfn, MoeFfn>& ffn) {
  if (const DenseFfn* dense = std::get_if<DenseFfn>(&ffn)) {
    return absl::StrCat("dense: width ", dense->intermediate_size, dense->gated ? ", gated" : "",
                        Describe(dense->activation), dense->bias ? ", biases" : "");
  }
  const MoeFfn& moe = std::get<MoeFfn>(ffn);
  std::string text = absl::StrCat("moe: ", moe.routing.num_experts, " experts of width ", moe.expert_intermediate_size,
                                  ", ", moe.routing.num_experts_per_token, " per token");
  if (moe.routing.groups.has_value()) {
    absl::StrAppend(&text, " from ", moe.routing.groups->num_kept, " of ", moe.routing.groups->num_groups, " groups");
  }
  if (moe.shared_intermediate_size.has_value()) {
    absl::StrAppend(&text, ", shared expert of width ", *moe.shared_intermediate_size);
  }
  if (moe.routing.score == MoeScore::kSigmoid) absl::StrAppend(&text, ", sigmoid scores");
  if (moe.selection_bias) absl::StrAppend(&text, ", selection bias");
  if (moe.routing.routed_scale != 1) absl::StrAppend(&text, ", scale ", moe.routing.routed_scale);
  if (moe.weight_on_input) absl::StrAppend(&text, ", weights on inputs");
  return absl::StrCat(text, Describe(moe.activation), moe.router_bias || moe.expert_bias ? ", biases" : "");
}

std::vector<std::string> DescribeKvGroups(const ModelSpec& spec, const KvGroups& groups) {
  std::vector<std::string> lines;
  for (size_t group = 0; group < groups.masks.size(); ++group) {
    const AttentionMask& mask = groups.masks[group];
    if (std::find(groups.masks.begin(), groups.masks.begin() + ptrdiff_t(group), mask) !=
        groups.masks.begin() + ptrdiff_t(group)) {
      continue;
    }
    const int64_t num_groups = std::count(groups.masks.begin(), groups.masks.end(), mask);
    const int64_t num_places = num_groups * groups.num_storages;
    const int64_t num_layers = std::count_if(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& layer) {
      return groups.masks[size_t(layer.kv_group)] == mask;
    });
    const std::string name = mask.kind == MaskKind::kFull ? "full" : Describe(mask).substr(2);
    lines.push_back(absl::StrCat(num_groups, " x ", name, ": ", num_layers, num_layers == 1 ? " layer" : " layers",
                                 num_places == num_layers ? "" : absl::StrCat(" in ", num_places, " places")));
  }
  return lines;
}

int64_t NumActive(const ModelSpec& spec) {
  int64_t active = 0;
  for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
    int64_t elements = tensor.num_elements();
    const bool expert = tensor.role >= TensorRole::kExpertGate && tensor.role <= TensorRole::kExpertDownBias;
    if (expert) {
      const MoeFfn& moe = std::get<MoeFfn>(spec.layers[tensor.layer].ffn);
      elements = elements / moe.routing.num_experts * moe.routing.num_experts_per_token;
    }
    active += elements;
  }
  return active;
}

// "rope scaling factor 40", "rope by the length of the sequence"; once for each kind that occurs.
void AddRopeFeatures(const ModelSpec& spec, std::vector<std::string>* features) {
  if (spec.rope_tables.size() > 1) features->push_back(absl::StrCat(spec.rope_tables.size(), " rope tables"));
  const auto add = [&](const std::string& feature) {
    if (std::find(features->begin(), features->end(), feature) == features->end()) features->push_back(feature);
  };
  const auto by_length = [](const RopeTable& table) { return table.depends_on_length(); };
  if (spec.rope_scaling_factor != 1 && std::none_of(spec.rope_tables.begin(), spec.rope_tables.end(), by_length)) {
    add(absl::StrFormat("rope scaling factor %.4g", spec.rope_scaling_factor));
  }
  for (const RopeTable& table : spec.rope_tables) {
    if (by_length(table)) add("rope by the length of the sequence");
    if (table.attention_factor != 1) add(absl::StrFormat("rope magnitude %.5g", table.attention_factor));
  }
  if (LongestContext(spec) > spec.max_position) {
    add(absl::StrCat("up to ", FormatCount(LongestContext(spec)), " tokens with --max-model-len"));
  }
}

std::vector<std::string> Features(const ModelSpec& spec) {
  std::vector<std::string> features;
  if (spec.tied_embeddings) {
    const int64_t saved = int64_t{spec.vocab_size} * spec.d_model;
    features.push_back(absl::StrCat("tied embeddings (save ", FormatCount(saved), " parameters)"));
  }
  if (spec.position_embedding == PositionEmbedding::kLearned) features.push_back("learned positions");
  AddRopeFeatures(spec, &features);
  if (spec.final_norm.kind == NormKind::kLayer) features.push_back("layer norms");
  if (spec.embedding_scale != 1) features.push_back(absl::StrCat("embedding scale ", spec.embedding_scale));
  if (spec.logit_scale != 1) features.push_back(absl::StrCat("logit scale ", spec.logit_scale));
  if (spec.final_softcap.has_value()) features.push_back(absl::StrCat("final softcap ", *spec.final_softcap));
  const auto any = [&](auto predicate) { return std::any_of(spec.layers.begin(), spec.layers.end(), predicate); };
  if (any([](const LayerSpec& l) { return l.post_attn.has_value() || l.post_ffn.has_value(); })) {
    features.push_back("norms after attention and ffn");
  }
  if (any([](const LayerSpec& l) { return l.attention.query_temperature.has_value(); })) {
    features.push_back("query temperature");
  }
  return features;
}

}  // namespace

ModelSummary SummarizeModel(const ModelSpec& spec) {
  ModelSummary summary;
  summary.architecture = spec.architecture;
  summary.num_layers = int32_t(spec.layers.size());
  summary.d_model = spec.d_model;
  summary.vocab_size = spec.vocab_size;
  summary.max_position = spec.max_position;
  Tally attention, ffn;
  for (const LayerSpec& layer : spec.layers) {
    attention.Add(Describe(layer.attention));
    ffn.Add(Describe(layer.ffn));
    summary.kv_values_per_token += KvValuesPerToken(layer);
  }
  const KvGroups groups = MakeKvGroups(spec);
  summary.kv_groups = DescribeKvGroups(spec, groups);
  // Of layers with different shapes every one has a place of its own.
  summary.kv_group_values_per_token = groups.num_storages == summary.num_layers
                                          ? summary.kv_values_per_token
                                          : KvValuesPerToken(spec.layers[0]) * groups.num_storages;
  summary.attention = attention.Lines();
  summary.ffn = ffn.Lines();
  summary.features = Features(spec);
  summary.num_parameters = NumParameters(spec);
  summary.num_active_parameters = NumActive(spec);
  return summary;
}

std::string FormatCount(int64_t n) {
  const std::string digits = absl::StrCat(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatBytes(int64_t bytes) {
  constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
  if (bytes >= kGiB) return absl::StrFormat("%.2f GiB", double(bytes) / kGiB);
  if (bytes >= kMiB) return absl::StrFormat("%.2f MiB", double(bytes) / kMiB);
  if (bytes >= kKiB) return absl::StrFormat("%.2f KiB", double(bytes) / kKiB);
  return FormatCount(bytes) + " B";
}

std::string FormatModelSummary(const ModelSpec& spec, int32_t kv_bytes_per_value, int64_t context_tokens) {
  const ModelSummary summary = SummarizeModel(spec);
  if (context_tokens == 0) context_tokens = summary.max_position;
  std::string text;
  const auto line = [&](absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text, absl::StrFormat("%-22s %s\n", absl::StrCat(name, ":"), value));
  };
  line("architecture", summary.architecture);
  line("parameters", FormatCount(summary.num_parameters));
  if (summary.num_active_parameters != summary.num_parameters) {
    line("active per token", FormatCount(summary.num_active_parameters));
  }
  line("layers", FormatCount(summary.num_layers));
  line("model width", FormatCount(summary.d_model));
  line("vocabulary", FormatCount(summary.vocab_size));
  line("context", absl::StrCat(FormatCount(summary.max_position), " tokens"));
  for (const std::string& kind : summary.attention) line("attention", kind);
  for (const std::string& kind : summary.ffn) line("ffn", kind);
  if (!summary.features.empty()) line("features", absl::StrJoin(summary.features, ", "));
  for (const std::string& group : summary.kv_groups) line("kv groups", group);
  const int64_t per_group_token = summary.kv_group_values_per_token * kv_bytes_per_value;
  line("kv block per token", absl::StrCat(FormatCount(per_group_token), " B (", FormatBytes(per_group_token), ")"));
  const int64_t per_token = summary.kv_values_per_token * kv_bytes_per_value;
  line("kv cache per token", absl::StrCat(FormatCount(per_token), " B (", FormatBytes(per_token), ")"));
  const int64_t context_bytes = KvBytes(spec, context_tokens, kv_bytes_per_value);
  line("kv cache for context", absl::StrCat(FormatBytes(context_bytes), " at ", FormatCount(context_tokens),
                                            " tokens, ", kv_bytes_per_value, "-byte values"));
  return text;
}

}  // namespace sluice
