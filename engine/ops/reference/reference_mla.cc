#include "engine/ops/reference/reference_mla.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/status_macros.h"
#include "engine/ops/reference/reference_math.h"
#include "engine/ops/reference/reference_types.h"
#include "engine/ops/validate.h"

namespace sluice::reference {
namespace {

struct MlaUp : MlaUpWeights {
  Floats key;    // [num_heads, nope, kv_lora]
  Floats value;  // [num_heads, v, kv_lora]
  int64_t resident_bytes() const override { return int64_t(key.size() + value.size()) * 4; }
};

void NormaliseBy(const NormArgs& norm, float* x, int64_t n) {
  Normalise(x, n, norm.params, V(norm.weight), V(norm.bias));
}

// y[rows] = w[rows, cols] * x
Floats MultiplyRows(const float* w, int64_t rows, int64_t cols, const float* x) {
  Floats y(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; i++) {
    double sum = 0;
    for (int64_t k = 0; k < cols; k++) sum += double(w[i * cols + k]) * x[k];
    y[size_t(i)] = float(sum);
  }
  return y;
}

double Dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += double(a[i]) * b[i];
  return sum;
}

// The rows of one sequence in one head.
class HeadRunner {
 public:
  HeadRunner(const BatchView& batch, const MlaAttentionArgs& args, int sequence, int head)
      : args_(args),
        heads_(args.heads),
        head_(head),
        kv_(const_cast<Cache&>(static_cast<const Cache&>(*args.kv))),
        table_(&group(batch).block_tables[size_t(sequence) * size_t(group(batch).block_table_stride)]),
        key_up_(static_cast<const MlaUp&>(*args.up).key.data() + int64_t{head} * heads_.qk_nope_head_dim * lora()),
        value_up_(static_cast<const MlaUp&>(*args.up).value.data() + int64_t{head} * heads_.v_head_dim * lora()),
        expanded_(size_t(batch.context_lens[size_t(sequence)])) {}

  void Absorbed(int64_t position, const float* q, float* out) const {
    Floats latent_q(size_t(lora()), 0);
    for (int l = 0; l < lora(); l++) {
      double sum = 0;
      for (int n = 0; n < nope(); n++) sum += double(q[n]) * key_up_[int64_t{n} * lora() + l];
      latent_q[size_t(l)] = float(sum);
    }
    const std::vector<double> weights = Softmax(position, [&](int64_t key) {
      return Dot(latent_q.data(), latent(key), lora()) + Dot(q + nope(), latent(key) + lora(), rope());
    });
    const Floats sum = Weigh(position, weights, lora(), [&](int64_t key) { return latent(key); });
    const Floats y = MultiplyRows(value_up_, heads_.v_head_dim, lora(), sum.data());
    std::copy(y.begin(), y.end(), out);
  }

  void Expanded(int64_t position, const float* q, float* out) {
    const std::vector<double> weights = Softmax(position, [&](int64_t key) {
      return Dot(q, Expand(key).data(), nope()) + Dot(q + nope(), latent(key) + lora(), rope());
    });
    const Floats y =
        Weigh(position, weights, heads_.v_head_dim, [&](int64_t key) { return Expand(key).data() + nope(); });
    std::copy(y.begin(), y.end(), out);
  }

 private:
  const KvGroupView& group(const BatchView& batch) const { return batch.kv_groups[size_t(args_.kv_group)]; }
  int lora() const { return heads_.kv_lora_rank; }
  int nope() const { return heads_.qk_nope_head_dim; }
  int rope() const { return heads_.qk_rope_head_dim; }

  // Normed latent and rotated rope key.
  const float* latent(int64_t key) const {
    const int64_t block_size = kv_.cache_shape.block_size;
    return kv_.k(args_.layer, table_[key / block_size] * block_size + key % block_size, 0);
  }

  // k_nope | v of this head, made when first asked for.
  const Floats& Expand(int64_t key) {
    Floats& y = expanded_[size_t(key)];
    if (y.empty()) {
      y = MultiplyRows(key_up_, nope(), lora(), latent(key));
      const Floats v = MultiplyRows(value_up_, heads_.v_head_dim, lora(), latent(key));
      y.insert(y.end(), v.begin(), v.end());
    }
    return y;
  }

  // By key; 0 where it is not visible.
  template <class Score>
  std::vector<double> Softmax(int64_t position, Score&& score) const {
    std::vector<double> weights(size_t(position + 1), 0);
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t key = 0; key <= position; key++) {
      if (!IsVisible(args_.mask, position, key)) continue;
      weights[size_t(key)] = double(args_.scale) * score(key);
      top = std::max(top, weights[size_t(key)]);
    }
    for (int64_t key = 0; key <= position; key++) {
      if (!IsVisible(args_.mask, position, key)) continue;
      total += weights[size_t(key)] = std::exp(weights[size_t(key)] - top);
    }
    for (double& w : weights) w /= total;
    return weights;
  }

  template <class Value>
  Floats Weigh(int64_t position, const std::vector<double>& weights, int width, Value&& value) const {
    std::vector<double> sum(size_t(width), 0);
    for (int64_t key = 0; key <= position; key++) {
      if (!IsVisible(args_.mask, position, key)) continue;
      const float* v = value(key);
      for (int i = 0; i < width; i++) sum[size_t(i)] += weights[size_t(key)] * v[i];
    }
    return Floats(sum.begin(), sum.end());
  }

  const MlaAttentionArgs& args_;
  const Mla& heads_;
  const int head_;
  Cache& kv_;
  const int32_t* const table_;
  const float* const key_up_;
  const float* const value_up_;
  std::vector<Floats> expanded_;  // [context_len]
};

}  // namespace

absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                        const Mla& heads) {
  SLUICE_RETURN_IF_ERROR(ValidateMlaUp(key_up, value_up, heads));
  auto up = std::make_unique<MlaUp>();
  up->key.resize(size_t(key_up.num_elements()));
  up->value.resize(size_t(value_up.num_elements()));
  DequantizeRow(key_up.type, key_up.data.data(), key_up.num_elements(), up->key.data());
  DequantizeRow(value_up.type, value_up.data.data(), value_up.num_elements(), up->value.data());
  return up;
}

void MlaQkv(const BatchView& batch, const MlaQkvArgs& args) {
  const Mla& h = args.heads;
  const int q_dim = h.qk_nope_head_dim + h.qk_rope_head_dim;
  Cache& kv = static_cast<Cache&>(*args.kv);
  for (int s = 0; s < int(batch.context_lens.size()); s++) {
    for (int r = batch.row_starts[s]; r < batch.row_starts[s + 1]; r++) {
      Floats down = Multiply(M(args.down), NormedRow(R(args.x), r, args.norm).data(), V(args.bias));
      const int64_t q_size = h.q_lora_rank.has_value() ? *h.q_lora_rank : int64_t{h.num_heads} * q_dim;
      SLUICE_CHECK(int64_t(down.size()) == q_size + h.kv_lora_rank + h.qk_rope_head_dim);
      Floats q(down.begin(), down.begin() + q_size);
      if (h.q_lora_rank.has_value()) {
        NormaliseBy(args.q_latent_norm, q.data(), q_size);
        q = Multiply(M(args.q_up), q.data(), nullptr);
      }
      const Rotation rotation = RotationAt(args.rope, batch, s, batch.positions[r]);
      for (int i = 0; i < h.num_heads; i++) Rotate(args.rope, rotation, &q[size_t(i * q_dim + h.qk_nope_head_dim)]);
      std::copy(q.begin(), q.end(), R(args.q).row(r));

      float* latent = down.data() + q_size;
      NormaliseBy(args.kv_latent_norm, latent, h.kv_lora_rank);
      Rotate(args.rope, rotation, latent + h.kv_lora_rank);
      const int64_t slot = batch.kv_groups[size_t(args.kv_group)].slot_mapping[r];
      std::transform(latent, latent + h.kv_lora_rank + h.qk_rope_head_dim, kv.k(args.layer, slot, 0),
                     [&](float x) { return RoundTo(kv.cache_shape.dtype, x); });
    }
  }
}

void MlaAttention(const BatchView& batch, const MlaAttentionArgs& args) {
  const Mla& h = args.heads;
  const int q_dim = h.qk_nope_head_dim + h.qk_rope_head_dim;
  for (int s = 0; s < int(batch.context_lens.size()); s++) {
    for (int i = 0; i < h.num_heads; i++) {
      HeadRunner runner(batch, args, s, i);
      for (int r = batch.row_starts[s]; r < batch.row_starts[s + 1]; r++) {
        const float* q = R(args.q).row(r) + i * q_dim;
        float* out = R(args.out).row(r) + i * h.v_head_dim;
        const int32_t position = batch.positions[r];
        if (!batch.row_routes.empty() && (batch.row_routes[size_t(r)] & kRouteExpandedLatents) != 0) {
          runner.Expanded(position, q, out);
        } else {
          runner.Absorbed(position, q, out);
        }
      }
    }
  }
}

}  // namespace sluice::reference
