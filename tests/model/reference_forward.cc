#include "tests/model/reference_forward.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace sluice::testing {
namespace {

using Row = std::vector<double>;
using enum TensorRole;

class Forward {
 public:
  Forward(const ToyModel& model, const std::vector<int32_t>& tokens) : model_(model), spec_(model.spec) {
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
      for (Row& x : x_) Ffn(int32_t(layer), &x);
    }
    std::vector<Row> logits;
    for (const Row& x : x_) {
      const Row h = Norm(spec_.final_norm, kFinalNorm, kFinalNormBias, -1, x);
      Row row = Times(spec_.tied_embeddings ? kTokenEmbedding : kOutputHead, kFinalNorm, -1, h, false);
      for (double& v : row) v = Cap(v * double(spec_.logit_scale), spec_.final_softcap);
      logits.push_back(row);
    }
    return logits;
  }

 private:
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

  Row Times(TensorRole matrix, TensorRole bias, int32_t layer, const Row& x, bool has_bias = true) const {
    const std::vector<float>& w = *Find(matrix, layer);
    const std::vector<float>* b = has_bias ? Find(bias, layer) : nullptr;
    Row y(w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += double(w[o * x.size() + i]) * x[i];
      if (b != nullptr) y[o] += double((*b)[o]);
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
      const double angle = double(position) * double(table.inv_freq[size_t(pair)]);
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
    const AttentionSpec& attention = spec.attention;
    const Gqa& gqa = std::get<Gqa>(attention.kind);
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
    for (size_t t = 0; t < x_.size(); ++t) {
      Row out(size_t(gqa.num_heads * gqa.value_head_dim));
      for (int head = 0; head < gqa.num_heads; ++head) Attend(attention, layer, t, head, q, k, v, &out);
      Add(Norm(spec.post_attn, kPostAttnNorm, kPostAttnNormBias, layer, Times(kO, kOBias, layer, out)), &x_[t]);
    }
  }

  void Attend(const AttentionSpec& attention, int32_t layer, size_t t, int head, const std::vector<Row>& q,
              const std::vector<Row>& k, const std::vector<Row>& v, Row* out) const {
    const Gqa& gqa = std::get<Gqa>(attention.kind);
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

  void Ffn(int32_t layer, Row* x) const {
    const LayerSpec& spec = spec_.layers[size_t(layer)];
    const DenseFfn& ffn = std::get<DenseFfn>(spec.ffn);
    const Row h = Norm(spec.pre_ffn, kPreFfnNorm, kPreFfnNormBias, layer, *x);
    Row up = Times(kUp, kUpBias, layer, h);
    if (ffn.gated) {
      const Row gate = Times(kGate, kGateBias, layer, h);
      const bool clamped = ffn.activation.kind == ActivationKind::kSwigluOai;
      const double limit = double(ffn.activation.limit);
      for (size_t i = 0; i < up.size(); ++i) {
        const double g = Activate(ffn.activation, clamped ? std::min(gate[i], limit) : gate[i]);
        up[i] = g * (clamped ? std::clamp(up[i], -limit, limit) + 1 : up[i]);
      }
    } else {
      for (double& v : up) v = Activate(ffn.activation, v);
    }
    Add(Norm(spec.post_ffn, kPostFfnNorm, kPostFfnNormBias, layer, Times(kDown, kDownBias, layer, up)), x);
  }

  const ToyModel& model_;
  const ModelSpec& spec_;
  std::vector<Row> x_;  // [num tokens][d_model] the residual stream
};

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(const ToyModel& model, const std::vector<int32_t>& tokens) {
  return Forward(model, tokens).Run();
}

}  // namespace sluice::testing
