// Rotary position embedding of one head.
#pragma once

#include "engine/ops/cpu/norm_kernels.h"

namespace sluice {
namespace {

// kInterleaved: table[i] = cos, table[num_rotary + i] = -sin for even i, sin for odd i, of pair i / 2, so that
//   y = x * cos + swap(x) * sin.
// kHalfSplit: table[i] = cos, table[num_rotary / 2 + i] = sin of pair i.
void Rope(RopeLayout layout, const float* table, int num_rotary, float* x) {
  if (layout == RopeLayout::kInterleaved) {
    ForLanes(num_rotary, [&](int64_t i, int c) {
      const Vec v = LoadN(x + i, c);
      StoreN(x + i, Fma(SwapPairs(v), LoadN(table + num_rotary + i, c), Mul(v, LoadN(table + i, c))), c);
    });
    return;
  }
  const int half = num_rotary / 2;
  ForLanes(half, [&](int64_t i, int c) {
    const Vec a = LoadN(x + i, c), b = LoadN(x + half + i, c);
    const Vec cos = LoadN(table + i, c), sin = LoadN(table + half + i, c);
    StoreN(x + i, NegFma(b, sin, Mul(a, cos)), c);
    StoreN(x + half + i, Fma(a, sin, Mul(b, cos)), c);
  });
}

}  // namespace
}  // namespace sluice
