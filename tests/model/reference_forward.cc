#include "tests/model/reference_forward.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

namespace sluice::testing {
namespace {

using Row = std::vector<double>;
using enum TensorRole;

class Forward {
 public:
  Forward(const ToyModel& model, const std::vector<int32_t>& tokens) : model_(model), spec_(model.spec) {
    for (const RopeTable& table : spec_.rope_tables) inv_freq_.push_back(Frequencies(table, tokens.size()));
    const std::vector<float>& embedding = *Find(kTokenEmbedding, -1);
    const std::vector<float>* positions = Find(kPositionEmbedding, -1);
    for (size_t t = 0; t < tokens.size(); ++t) {
      Row row(size_t(spec_.d_model));
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = double(embedding[size_t(tokens[t]) * row.size() + i]) * double(spec_.embedding_scale);
        if (positions != nullptr) row[i] += double((*positions)[t * row.size() + i]);
      }
      x_.push_back(row);
    }
  }

  std::vector<Row> Run() {
    for (size_t layer = 0; layer < spec_.layers.size(); ++layer) {
      Attention(int32_t(layer));
      for (Row& x : x_) {
        std::visit([&](const auto& ffn) { Ffn(int32_t(layer), ffn, &x); }, spec_.layers[layer].ffn);
      }
    }
    std::vector<Row> logits;
    for (const Row& x : x_) {
      const Row h = Norm(spec_.final_norm, kFinalNorm, kFinalNormBias, -1, x);
      Row row = Times(spec_.tied_embeddings ? kTokenEmbedding : kOutputHead, std::nullopt, -1, h);
      for (double& v : row) v = Cap(v * double(spec_.logit_scale), spec_.final_softcap);
      logits.push_back(row);
    }
    return logits;
  }

  double routing_margin() const { return routing_margin_; }

 private:
  static Row Frequencies(const RopeTable& table, size_t length) {
    Row frequencies(table.inv_freq.begin(), table.inv_freq.end());
    if (const LongRopeRule* rule = std::get_if<LongRopeRule>(&table.length_rule)) {
      if (length > size_t(rule->original_max_position)) {
        frequencies.assign(rule->long_inv_freq.begin(), rule->long_inv_freq.end());
      }
    }
    if (const DynamicNtkRule* rule = std::get_if<DynamicNtkRule>(&table.length_rule)) {
      const double d = 2 * double(frequencies.size());
      const double stretch = double(rule->factor) * double(length) / rule->max_position - (double(rule->factor) - 1);
      if (length > size_t(rule->max_position)) {
        const double base = double(rule->base) * std::pow(stretch, d / (d - 2));
        for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = std::pow(base, -2 * double(i) / d);
      }
    }
    return frequencies;
  }

  const std::vector<float>* Find(TensorRole role, int32_t layer) const {
    const auto it = model_.values.find({role, layer});
    return it == model_.values.end() ? nullptr : &it->second;
  }

  static double Cap(double v, const std::optional<float>& cap) {
    return cap.has_value() ? double(*cap) * std::tanh(v / double(*cap)) : v;
  }

  static Row Normalise(const NormParams& norm, Row x, const float* weight, const float* bias) {
    double mean = 0, variance = 0;
    if (norm.kind == NormKind::kLayer) {
      for (double v : x) mean += v;
      mean /= double(x.size());
    }
    for (double v : x) variance += (v - mean) * (v - mean);
    variance /= double(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = (x[i] - mean) / std::sqrt(variance + double(norm.eps));
      if (weight != nullptr) x[i] *= double(weight[i]) + double(norm.weight_offset);
      if (bias != nullptr) x[i] += double(bias[i]);
    }
    return x;
  }

  Row Norm(const std::optional<NormParams>& norm, TensorRole weight, TensorRole bias, int32_t layer,
           const Row& x) const {
    if (!norm.has_value()) return x;
    const std::vector<float>* b = Find(bias, layer);
    return Normalise(*norm, x, Find(weight, layer)->data(), b == nullptr ? nullptr : b->data());
  }

  // The index-th of `count` matrices times x, plus the index-th bias.
  Row Times(TensorRole matrix, std::optional<TensorRole> bias, int32_t layer, const Row& x, size_t index = 0,
            size_t count = 1) const {
    const std::vector<float>& all = *Find(matrix, layer);
    const std::vector<float>* b = bias.has_value() ? Find(*bias, layer) : nullptr;
    Row y(all.size() / count / x.size());
    const float* w = all.data() + index * y.size() * x.size();
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += double(w[o * x.size() + i]) * x[i];
      if (b != nullptr) y[o] += double((*b)[index * y.size() + o]);
    }
    return y;
  }

  void Add(const Row& y, Row* x) const {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
  }

  void Rotate(const RopeSpec& rope, size_t position, double* head) const {
    const RopeTable& table = spec_.rope_tables[size_t(rope.table)];
    for (int pair = 0; pair < rope.num_rotary / 2; ++pair) {
      const bool split = rope.layout == RopeLayout::kHalfSplit;
      double& a = head[split ? pair : 2 * pair];
      double& b = head[split ? pair + rope.num_rotary / 2 : 2 * pair + 1];
      const double angle = double(position) * inv_freq_[size_t(rope.table)][size_t(pair)];
      const double c = std::cos(angle) * double(table.attention_factor);
      const double s = std::sin(angle) * double(table.attention_factor);
      const double a0 = a;
      a = a0 * c - b * s;
      b = b * c + a0 * s;
    }
  }

  void QkNorm(const QkNormSpec& norm, TensorRole weight, int32_t layer, int32_t head_dim, Row* heads) const {
    if (norm.kind == QkNormKind::kNone) return;
    const std::vector<float>* w = Find(weight, layer);
    const size_t width = norm.kind == QkNormKind::kFullWidth ? heads->size() : size_t(head_dim);
    for (size_t at = 0; at < heads->size(); at += width) {
      const Row part(heads->begin() + long(at), heads->begin() + long(at + width));
      const Row normed = Normalise(norm.norm, part, w == nullptr ? nullptr : w->data(), nullptr);
      std::copy(normed.begin(), normed.end(), heads->begin() + long(at));
    }
  }

  static bool Sees(const AttentionMask& mask, size_t query, size_t key) {
    if (key > query) return false;
    if (mask.kind == MaskKind::kWindow) return query - key < size_t(mask.size);
    if (mask.kind == MaskKind::kChunk) return query / size_t(mask.size) == key / size_t(mask.size);
    return true;
  }

  void Attention(int32_t layer) {
    const LayerSpec& spec = spec_.layers[size_t(layer)];
    std::vector<Row> out = std::visit([&](const auto& kind) { return Attend(layer, kind); }, spec.attention.kind);
    for (size_t t = 0; t < x_.size(); ++t) {
      Add(Norm(spec.post_attn, kPostAttnNorm, kPostAttnNormBias, layer, Times(kO, kOBias, layer, out[t])), &x_[t]);
    }
  }

  // Keys and values of every head, made of the latent. The scores are those of grouped-query attention in which each
  // head has its own.
  std::vector<Row> Attend(int32_t layer, const Mla& mla) const {
    const LayerSpec& spec = spec_.layers[size_t(layer)];
    const RopeSpec& rope = *spec.attention.rope;
    const NormParams latent_norm{.eps = mla.latent_norm_eps};
    const size_t heads = size_t(mla.num_heads), nope = size_t(mla.qk_nope_head_dim);
    const size_t width = nope + size_t(mla.qk_rope_head_dim);
    std::vector<Row> q, k, v;
    for (size_t t = 0; t < x_.size(); ++t) {
      const Row h = Norm(spec.pre_attn, kPreAttnNorm, kPreAttnNormBias, layer, x_[t]);
      if (mla.q_lora_rank.has_value()) {
        const Row down = Times(kQDown, kQBias, layer, h);
        q.push_back(
            Times(kQUp, std::nullopt, layer, Normalise(latent_norm, down, Find(kQLatentNorm, layer)->data(), nullptr)));
      } else {
        q.push_back(Times(kQ, kQBias, layer, h));
      }
      const Row down = Times(kKvDown, kKBias, layer, h);
      const Row latent = Normalise(latent_norm, Row(down.begin(), down.begin() + mla.kv_lora_rank),
                                   Find(kKvLatentNorm, layer)->data(), nullptr);
      Row shared_key(down.begin() + mla.kv_lora_rank, down.end());
      Rotate(rope, t, shared_key.data());
      k.emplace_back();
      v.emplace_back();
      for (size_t head = 0; head < heads; ++head) {
        Rotate(rope, t, &q[t][head * width + nope]);
        const Row key = Times(kKeyUp, std::nullopt, layer, latent, head, heads);
        const Row value = Times(kValueUp, std::nullopt, layer, latent, head, heads);
        k[t].insert(k[t].end(), key.begin(), key.end());
        k[t].insert(k[t].end(), shared_key.begin(), shared_key.end());
        v[t].insert(v[t].end(), value.begin(), value.end());
      }
    }
    const Gqa each{.num_heads = mla.num_heads,
                   .num_kv_heads = mla.num_heads,
                   .head_dim = int32_t(width),
                   .value_head_dim = mla.v_head_dim,
                   .qk_norm = {}};
    return AttendAll(layer, each, q, k, v);
  }

  std::vector<Row> Attend(int32_t layer, const Gqa& gqa) const {
    const LayerSpec& spec = spec_.layers[size_t(layer)];
    const AttentionSpec& attention = spec.attention;
    std::vector<Row> q, k, v;
    for (size_t t = 0; t < x_.size(); ++t) {
      const Row h = Norm(spec.pre_attn, kPreAttnNorm, kPreAttnNormBias, layer, x_[t]);
      q.push_back(Times(kQ, kQBias, layer, h));
      k.push_back(Times(kK, kKBias, layer, h));
      v.push_back(Times(kV, kVBias, layer, h));
      const auto norm = [&] {
        QkNorm(gqa.qk_norm, kQNorm, layer, gqa.head_dim, &q[t]);
        QkNorm(gqa.qk_norm, kKNorm, layer, gqa.head_dim, &k[t]);
      };
      if (!gqa.qk_norm.after_rope) norm();
      if (attention.rope.has_value()) {
        for (int head = 0; head < gqa.num_heads; ++head) Rotate(*attention.rope, t, &q[t][size_t(head * gqa.head_dim)]);
        for (int head = 0; head < gqa.num_kv_heads; ++head) {
          Rotate(*attention.rope, t, &k[t][size_t(head * gqa.head_dim)]);
        }
      }
      if (gqa.qk_norm.after_rope) norm();
      if (attention.query_temperature.has_value()) {
        const double steps = std::floor((double(t) + 1) / double(attention.query_temperature->floor));
        for (double& value : q[t]) value *= 1 + double(attention.query_temperature->coef) * std::log1p(steps);
      }
    }
    return AttendAll(layer, gqa, q, k, v);
  }

  std::vector<Row> AttendAll(int32_t layer, const Gqa& gqa, const std::vector<Row>& q, const std::vector<Row>& k,
                             const std::vector<Row>& v) const {
    std::vector<Row> out(q.size(), Row(size_t(gqa.num_heads * gqa.value_head_dim)));
    for (size_t t = 0; t < out.size(); ++t) {
      for (int head = 0; head < gqa.num_heads; ++head) AttendHead(layer, gqa, t, head, q, k, v, &out[t]);
    }
    return out;
  }

  void AttendHead(int32_t layer, const Gqa& gqa, size_t t, int head, const std::vector<Row>& q,
                  const std::vector<Row>& k, const std::vector<Row>& v, Row* out) const {
    const AttentionSpec& attention = spec_.layers[size_t(layer)].attention;
    const int kv_head = head / (gqa.num_heads / gqa.num_kv_heads);
    double total = attention.sinks ? std::exp(double((*Find(kSinks, layer))[size_t(head)])) : 0;
    for (size_t key = 0; key <= t; ++key) {
      if (!Sees(attention.mask, t, key)) continue;
      double score = 0;
      for (int i = 0; i < gqa.head_dim; ++i) {
        score += q[t][size_t(head * gqa.head_dim + i)] * k[key][size_t(kv_head * gqa.head_dim + i)];
      }
      const double weight = std::exp(Cap(score * double(attention.scale), attention.softcap));
      total += weight;
      for (int i = 0; i < gqa.value_head_dim; ++i) {
        (*out)[size_t(head * gqa.value_head_dim + i)] += weight * v[key][size_t(kv_head * gqa.value_head_dim + i)];
      }
    }
    for (int i = 0; i < gqa.value_head_dim; ++i) (*out)[size_t(head * gqa.value_head_dim + i)] /= total;
  }

  static double Activate(const FfnActivation& activation, double x) {
    switch (activation.kind) {
      case ActivationKind::kSilu:
        return x / (1 + std::exp(-x));
      case ActivationKind::kGeluTanh:
        return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
      case ActivationKind::kGeluErf:
        return 0.5 * x * std::erfc(-x * 0.7071067811865476);
      case ActivationKind::kSwigluOai:
        return x / (1 + std::exp(-double(activation.alpha) * x));
    }
    return 0;
  }

  // up = act(gate) * up
  static void Gate(const FfnActivation& activation, const Row& gate, Row* up) {
    const bool clamped = activation.kind == ActivationKind::kSwigluOai;
    const double limit = double(activation.limit);
    for (size_t i = 0; i < gate.size(); ++i) {
      double& u = (*up)[i];
      const double g = Activate(activation, clamped ? std::min(gate[i], limit) : gate[i]);
      u = g * (clamped ? std::clamp(u, -limit, limit) + 1 : u);
    }
  }

  void Ffn(int32_t layer, const DenseFfn& ffn, Row* x) const {
    const LayerSpec& spec = spec_.layers[size_t(layer)];
    const Row h = Norm(spec.pre_ffn, kPreFfnNorm, kPreFfnNormBias, layer, *x);
    Row up = Times(kUp, kUpBias, layer, h);
    if (ffn.gated) {
      Gate(ffn.activation, Times(kGate, kGateBias, layer, h), &up);
    } else {
      for (double& v : up) v = Activate(ffn.activation, v);
    }
    Add(Norm(spec.post_ffn, kPostFfnNorm, kPostFfnNormBias, layer, Times(kDown, kDownBias, layer, up)), x);
  }

  // Indices of the `count` largest, and how far the last of them is above the next.
  std::vector<size_t> Largest(const Row& values, size_t count) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
    if (count < order.size()) {
      routing_margin_ = std::min(routing_margin_, values[order[count - 1]] - values[order[count]]);
    }
    order.resize(count);
    return order;
  }

  // Makes every expert outside the best groups impossible.
  void KeepBestGroups(const MoeGroups& groups, Row* choice) {
    const size_t size = choice->size() / size_t(groups.num_groups);
    Row scores;
    for (size_t at = 0; at < choice->size(); at += size) {
      Row group(choice->begin() + long(at), choice->begin() + long(at + size));
      std::sort(group.begin(), group.end(), std::greater<>());
      scores.push_back(groups.score == MoeGroupScore::kTop2Sum ? group[0] + group[1] : group[0]);
    }
    const std::vector<size_t> kept = Largest(scores, size_t(groups.num_kept));
    for (size_t e = 0; e < choice->size(); ++e) {
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) (*choice)[e] = -1e300;
    }
  }

  static Row Softmax(Row values) {
    double total = 0;
    for (double& v : values) total += v = std::exp(v);
    for (double& v : values) v /= total;
    return values;
  }

  // The weight of every expert, 0 for those not chosen.
  Row Route(const MoeFfn& moe, int32_t layer, const Row& h) {
    const MoeRouting& routing = moe.routing;
    Row scores = Times(kRouter, kRouterBias, layer, h);
    if (routing.score == MoeScore::kSoftmaxAll) scores = Softmax(scores);
    if (routing.score == MoeScore::kSigmoid) {
      for (double& s : scores) s = 1 / (1 + std::exp(-s));
    }
    Row choice = scores;
    if (moe.selection_bias) {
      for (size_t e = 0; e < choice.size(); ++e) choice[e] += double((*Find(kSelectionBias, layer))[e]);
    }
    if (routing.groups.has_value()) KeepBestGroups(*routing.groups, &choice);
    Row chosen;
    const std::vector<size_t> experts = Largest(choice, size_t(routing.num_experts_per_token));
    for (size_t e : experts) chosen.push_back(scores[e]);
    if (routing.score == MoeScore::kSoftmaxTopK) chosen = Softmax(chosen);
    double total = double(routing.renormalize_eps);
    for (double s : chosen) total += s;
    Row weights(scores.size());
    for (size_t i = 0; i < experts.size(); ++i) {
      weights[experts[i]] = chosen[i] / (routing.renormalize ? total : 1) * double(routing.routed_scale);
    }
    return weights;
  }

  void Ffn(int32_t layer, const MoeFfn& moe, Row* x) {
    const LayerSpec& spec = spec_.layers[size_t(layer)];
    const Row h = Norm(spec.pre_ffn, kPreFfnNorm, kPreFfnNormBias, layer, *x);
    const Row weights = Route(moe, layer, h);
    Row sum(h.size());
    for (size_t e = 0; e < weights.size(); ++e) {
      if (weights[e] == 0) continue;
      Row in = h;
      if (moe.weight_on_input) {
        for (double& v : in) v *= weights[e];
      }
      Row up = Times(kExpertUp, kExpertUpBias, layer, in, e, weights.size());
      Gate(moe.activation, Times(kExpertGate, kExpertGateBias, layer, in, e, weights.size()), &up);
      Row out = Times(kExpertDown, kExpertDownBias, layer, up, e, weights.size());
      for (double& v : out) v *= moe.weight_on_input ? 1 : weights[e];
      Add(out, &sum);
    }
    if (moe.shared_intermediate_size.has_value()) {
      Row up = Times(kSharedUp, std::nullopt, layer, h);
      Gate(moe.activation, Times(kSharedGate, std::nullopt, layer, h), &up);
      Add(Times(kSharedDown, std::nullopt, layer, up), &sum);
    }
    Add(Norm(spec.post_ffn, kPostFfnNorm, kPostFfnNormBias, layer, sum), x);
  }

  const ToyModel& model_;
  const ModelSpec& spec_;
  std::vector<Row> inv_freq_;  // of each rope table
  std::vector<Row> x_;         // [num tokens][d_model] the residual stream
  double routing_margin_ = std::numeric_limits<double>::infinity();
};

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(const ToyModel& model, const std::vector<int32_t>& tokens,
                                                 double* routing_margin) {
  Forward forward(model, tokens);
  std::vector<std::vector<double>> logits = forward.Run();
  if (routing_margin != nullptr) *routing_margin = forward.routing_margin();
  return logits;
}

}  // namespace sluice::testing
