#include "engine/ops/reference/reference_math.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/float16.h"

namespace sluice::reference {

float RoundTo(KvDType type, float x) {
  switch (type) {
    case KvDType::kF32:
      return x;
    case KvDType::kF16:
      // A cache in f16 holds numbers: a finite one beyond the largest f16 becomes that.
      return F16ToFloat(FloatToF16(std::isfinite(x) ? std::clamp(x, -65504.0f, 65504.0f) : x));
    case KvDType::kBF16:
      return Bf16ToFloat(FloatToBf16(x));
    case KvDType::kF8E4M3:
      return F8E4M3ToFloat(FloatToF8E4M3(x));
  }
  return x;
}

void Normalise(float* x, int64_t n, const NormParams& params, const float* weight, const float* bias) {
  double mean = 0, square = 0;
  if (params.kind == NormKind::kLayer) {
    for (int64_t i = 0; i < n; i++) mean += double(x[i]) / double(n);
  }
  for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / double(n);
  const double scale = 1 / std::sqrt(square + double(params.eps));
  for (int64_t i = 0; i < n; i++) {
    const double w = weight ? double(weight[i]) + double(params.weight_offset) : 1;
    x[i] = float((x[i] - mean) * scale * w + (bias ? double(bias[i]) : 0));
  }
}

Floats NormedRow(const Rows& x, int64_t row, const std::optional<NormArgs>& norm) {
  Floats y(x.row(row), x.row(row) + x.num_cols);
  if (norm) Normalise(y.data(), x.num_cols, norm->params, V(norm->weight), V(norm->bias));
  return y;
}

Matrix ReadMatrix(std::span<const TensorView> parts) {
  Matrix w;
  w.in = parts[0].shape[1];
  for (const TensorView& part : parts) {
    const size_t offset = w.values.size();
    w.out += part.shape[0];
    w.values.resize(offset + size_t(part.num_elements()));
    DequantizeRow(part.type, part.data.data(), part.num_elements(), &w.values[offset]);
  }
  return w;
}

Floats Multiply(const Matrix& w, const float* x, const float* bias) {
  Floats y(w.out);
  for (int64_t i = 0; i < w.out; i++) {
    double sum = bias ? double(bias[i]) : 0;
    for (int64_t k = 0; k < w.in; k++) sum += double(w.values[size_t(i * w.in + k)]) * x[k];
    y[i] = float(sum);
  }
  return y;
}

void AddToResidual(Floats y, const std::optional<NormArgs>& post_norm, float* x) {
  if (post_norm) {
    Normalise(y.data(), int64_t(y.size()), post_norm->params, V(post_norm->weight), V(post_norm->bias));
  }
  for (size_t i = 0; i < y.size(); i++) x[i] += y[i];
}

Rotation RotationAt(const RopeArgs& rope, const BatchView& batch, int sequence, int32_t position) {
  const Rope& data = static_cast<const Rope&>(*rope.table);
  SLUICE_CHECK(position < data.max_position && 2 * int(data.table.inv_freq.size()) == rope.num_rotary);
  Floats inv_freq = data.table.inv_freq;
  if (data.table.depends_on_length()) {
    SLUICE_CHECK(batch.rope_classes.size() == batch.context_lens.size());
    SelectInvFreq(data.table, batch.rope_classes[size_t(sequence)], &inv_freq);
  }
  Rotation rotation;
  for (float f : inv_freq) {
    const float angle = float(position) * f;  // in f32, as checkpoints expect
    rotation.cos.push_back(double(float(std::cos(double(angle)) * data.table.attention_factor)));
    rotation.sin.push_back(double(float(std::sin(double(angle)) * data.table.attention_factor)));
  }
  return rotation;
}

void Rotate(const RopeArgs& rope, const Rotation& rotation, float* head) {
  const int half = rope.num_rotary / 2;
  for (int i = 0; i < half; i++) {
    const bool split = rope.layout == RopeLayout::kHalfSplit;
    float& a = head[split ? i : 2 * i];
    float& b = head[split ? i + half : 2 * i + 1];
    const double a0 = a, b0 = b;
    a = float(a0 * rotation.cos[size_t(i)] - b0 * rotation.sin[size_t(i)]);
    b = float(b0 * rotation.cos[size_t(i)] + a0 * rotation.sin[size_t(i)]);
  }
}

void NormHeads(const QkNormSpec& spec, const VectorWeights* weight, float* x, int num_heads, int head_dim) {
  if (spec.kind == QkNormKind::kFullWidth) {
    Normalise(x, int64_t{num_heads} * head_dim, spec.norm, V(weight), nullptr);
  } else if (spec.kind != QkNormKind::kNone) {
    const float* w = spec.kind == QkNormKind::kPerHead ? V(weight) : nullptr;
    for (int h = 0; h < num_heads; h++) Normalise(x + h * head_dim, head_dim, spec.norm, w, nullptr);
  }
}

bool IsVisible(const AttentionMask& mask, int64_t query, int64_t key) {
  if (key > query) return false;
  if (mask.kind == MaskKind::kWindow) return query - key < mask.size;
  if (mask.kind == MaskKind::kChunk) return query / mask.size == key / mask.size;
  return true;
}

double Activate(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::kSwigluOai:
      break;
  }
  SLUICE_CHECK(false && "swiglu_oai has a gate");
  return 0;
}

double ActivateGated(ActivationKind kind, double alpha, double limit, double gate, double up) {
  if (kind != ActivationKind::kSwigluOai) return Activate(kind, gate) * up;
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit);
  return gate / (1 + std::exp(-alpha * gate)) * (up + 1);
}

}  // namespace sluice::reference
