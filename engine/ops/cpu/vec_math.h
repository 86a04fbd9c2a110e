// exp, tanh, erf and the logistic function over 16 lanes, the same bits on every instruction set. NaN stays NaN.
#pragma once

#include "engine/ops/cpu/vec16.h"

namespace sluice {
namespace {

// e^x for x <= 88, within 3 units in the last place from -87.3 on, exactly 1 at 0, and 0 below -87.7, so that weights
// too small to matter do not drag subnormal numbers, which are slow, through later sums. x = n ln 2 + r, |r| <= ln 2 /
// 2; the fused product leaves no more than n * 2e-9 of ln 2's own rounding. The polynomial is the minimax one of degree
// 6 with constant term 1 (relative error 3e-9).
inline Vec ExpUpTo88(Vec x) {
  x = Max(Set(-88.0f), x);             // x second: NaN passes
  const Vec magic = Set(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Vec shifted = Fma(x, Set(1.44269504f), magic);
  const Vec r = NegFma(Sub(shifted, magic), Set(0.69314718f), x);
  Vec p = Set(1.4061276763e-3f);
  p = Fma(p, r, Set(8.3790207356e-3f));
  p = Fma(p, r, Set(4.1664776502e-2f));
  p = Fma(p, r, Set(1.6666365315e-1f));
  p = Fma(p, r, Set(5.0000004346e-1f));
  p = Fma(p, r, Set(1.0000000497f));
  p = Fma(p, r, Set(1.0f));
  // 0 for n = -127, which is where the lower end of the range comes out.
  const IntVec power_of_two = AddInt(ShiftLeft<23>(Bits(shifted)), SetInt(127 << 23));
  return Mul(p, FromBits(power_of_two));
}

// The same for any x; at most e^88.
inline Vec Exp(Vec x) { return ExpUpTo88(Min(Set(88.0f), x)); }

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
