// The activation functions of feed-forward layers.
#pragma once

#include "engine/ops/cpu/norm_kernels.h"

namespace sluice {
namespace {

inline Vec Silu(Vec x) { return TimesLogistic(x, x); }

// 0.5 x (1 + tanh(u)) = x * logistic(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
inline Vec GeluTanh(Vec x) {
  const Vec u = Mul(x, Fma(Mul(x, x), Set(0.044715f * 0.7978845608f), Set(0.7978845608f)));
  return TimesLogistic(x, Add(u, u));
}

inline Vec GeluErf(Vec x) { return Mul(Mul(Set(0.5f), x), Add(Set(1.0f), Erf(Mul(x, Set(0.7071067812f))))); }

template <class Function>
inline void Gated(const float* gate, const float* up, int64_t n, float* out, Function function) {
  ForLanes(n, [&](int64_t i, int c) {
    Vec y = function(LoadN(gate + i, c));
    if (up != nullptr) y = Mul(y, LoadN(up + i, c));
    StoreN(out + i, y, c);
  });
}

void Activate(ActivationKind kind, float alpha, float limit, const float* gate, const float* up, int64_t n,
              float* out) {
  switch (kind) {
    case ActivationKind::kSilu:
      return Gated(gate, up, n, out, [](Vec x) { return Silu(x); });
    case ActivationKind::kGeluTanh:
      return Gated(gate, up, n, out, [](Vec x) { return GeluTanh(x); });
    case ActivationKind::kGeluErf:
      return Gated(gate, up, n, out, [](Vec x) { return GeluErf(x); });
    case ActivationKind::kSwigluOai:
      return ForLanes(n, [&](int64_t i, int c) {  // the limit first: NaN passes
        const Vec g = Min(Set(limit), LoadN(gate + i, c));
        const Vec u = Min(Set(limit), Max(Set(-limit), LoadN(up + i, c)));
        StoreN(out + i, Mul(TimesLogistic(g, Mul(Set(alpha), g)), Add(u, Set(1.0f))), c);
      });
  }
}

}  // namespace
}  // namespace sluice
