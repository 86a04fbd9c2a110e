// exp, tanh, erf and the logistic function over 16 lanes, the same bits on every instruction set. NaN stays NaN.
#pragma once

#include "engine/ops/cpu/vec16.h"

namespace sluice {
namespace {

// e^x within 2 units in the last place for x in [-87, 88], clamped beyond: e^-87 = 1.6e-38 stands for all smaller
// values. x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, so that n times the first is exact; the polynomial is
// that of Cephes' expf.
inline Vec Exp(Vec x) {
  x = Min(Set(88.0f), Max(Set(-87.0f), x));  // x second: NaN passes
  const Vec magic = Set(12582912.0f);        // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Vec shifted = Fma(x, Set(1.44269504f), magic);
  const Vec n = Sub(shifted, magic);
  Vec r = NegFma(n, Set(0.693359375f), x);
  r = NegFma(n, Set(-2.12194440e-4f), r);
  Vec p = Set(1.9875691500e-4f);
  p = Fma(p, r, Set(1.3981999507e-3f));
  p = Fma(p, r, Set(8.3334519073e-3f));
  p = Fma(p, r, Set(4.1665795894e-2f));
  p = Fma(p, r, Set(1.6666665459e-1f));
  p = Fma(p, r, Set(5.0000001201e-1f));
  p = Fma(p, Mul(r, r), Add(r, Set(1.0f)));
  const IntVec power_of_two = AddInt(ShiftLeft<23>(Bits(shifted)), SetInt(127 << 23));
  return Mul(p, FromBits(power_of_two));
}

// x / (1 + e^-s)
inline Vec TimesLogistic(Vec x, Vec s) { return Div(x, Add(Set(1.0f), Exp(Sub(Set(0.0f), s)))); }

inline IntVec SignBits(Vec x) { return And(Bits(x), SetInt(INT32_MIN)); }
inline Vec Abs(Vec x) { return FromBits(And(Bits(x), SetInt(INT32_MAX))); }

// Absolute error below 2e-7.
inline Vec Tanh(Vec x) {
  const Vec magnitude = Abs(x);
  const Vec e = Exp(Add(magnitude, magnitude));
  const Vec y = Sub(Set(1.0f), Div(Set(2.0f), Add(e, Set(1.0f))));
  return FromBits(Or(And(Bits(y), SetInt(INT32_MAX)), SignBits(x)));
}

// Absolute error below 4e-7: formula 7.1.26 of Abramowitz and Stegun.
inline Vec Erf(Vec x) {
  const Vec magnitude = Abs(x);
  const Vec t = Div(Set(1.0f), Fma(Set(0.3275911f), magnitude, Set(1.0f)));
  Vec p = Set(1.061405429f);
  p = Fma(p, t, Set(-1.453152027f));
  p = Fma(p, t, Set(1.421413741f));
  p = Fma(p, t, Set(-0.284496736f));
  p = Fma(p, t, Set(0.254829592f));
  const Vec y = NegFma(Mul(p, t), Exp(Sub(Set(0.0f), Mul(magnitude, magnitude))), Set(1.0f));
  return FromBits(Or(And(Bits(y), SetInt(INT32_MAX)), SignBits(x)));
}

}  // namespace
}  // namespace sluice
