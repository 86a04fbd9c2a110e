// RMS and layer normalisation, RoPE, activation functions and other element-wise work over one row.
#pragma once

#include <limits>

#include "engine/ops/cpu/float_kernels.h"
#include "engine/ops/cpu/vec_math.h"

namespace sluice {
namespace {

// Calls body(offset, count, load) over x[0, n) in steps of 16; the last step may be shorter and then loads zeros
// behind.
template <class Body>
inline void ForLanes(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, static_cast<int>(n - i));
}
inline Vec LoadN(const float* p, int count) { return count == kLanes ? Load(p) : LoadPartial(p, count); }
inline void StoreN(float* p, Vec x, int count) { count == kLanes ? Store(p, x) : StorePartial(p, x, count); }

void Norm(const NormParams& params, const float* x, int64_t n, const float* weight, const float* bias, float* y) {
  const float count = static_cast<float>(n);
  float mean = 0;
  if (params.kind == NormKind::kLayer) {
    Vec sum = Set(0);
    ForLanes(n, [&](int64_t i, int c) { sum = Add(sum, LoadN(x + i, c)); });
    mean = ReduceAdd(sum) / count;
  }
  Vec square = Set(0);
  ForLanes(n, [&](int64_t i, int c) {
    Vec d = Sub(LoadN(x + i, c), Set(mean));
    if (c < kLanes) d = Select(LaneRange(0, c), d, Set(0));
    square = Fma(d, d, square);
  });
  const Vec scale = Set(1.0f / __builtin_sqrtf(ReduceAdd(square) / count + params.eps));
  ForLanes(n, [&](int64_t i, int c) {
    Vec v = Mul(Sub(LoadN(x + i, c), Set(mean)), scale);
    if (weight != nullptr) v = Mul(v, Add(LoadN(weight + i, c), Set(params.weight_offset)));
    if (bias != nullptr) v = Add(v, LoadN(bias + i, c));
    StoreN(y + i, v, c);
  });
}

void AddTo(const float* x, int64_t n, float* y) {
  ForLanes(n, [&](int64_t i, int c) { StoreN(y + i, Add(LoadN(y + i, c), LoadN(x + i, c)), c); });
}

void Softcap(float cap, float* x, int64_t n) {
  ForLanes(n, [&](int64_t i, int c) { StoreN(x + i, Mul(Set(cap), Tanh(Div(LoadN(x + i, c), Set(cap)))), c); });
}

// Finite numbers beyond the largest f16 become it; NaN and infinity stay, and are found among the logits.
Vec WithinF16(Vec x) {
  const Vec most = Set(65504.0f), largest = Set(std::numeric_limits<float>::max());
  const Vec least = Set(-65504.0f), smallest = Set(std::numeric_limits<float>::lowest());
  const Vec above = Select(Greater(x, largest), x, most), below = Select(Greater(smallest, x), x, least);
  return Select(Greater(x, most), above, Select(Greater(least, x), below, x));
}

void ToCacheF16(const float* x, int64_t n, uint16_t* out) {
  ForLanes(n, [&](int64_t i, int c) {
    if (c == kLanes) return StoreF16(out + i, WithinF16(Load(x + i)));
    uint16_t lanes[kLanes];
    StoreF16(lanes, WithinF16(LoadPartial(x + i, c)));
    for (int j = 0; j < c; ++j) out[i + j] = lanes[j];
  });
}

}  // namespace
}  // namespace sluice
