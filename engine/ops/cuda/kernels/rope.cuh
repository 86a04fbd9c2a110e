// The rotary embedding of one pair of a head. Steps that checkpoints were trained with in f32 are rounded to f32 as
// engine/base/rope_table.cc does it; what lies between has room to spare.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/qkv.h"

namespace sluice::cuda {

struct Rotation {
  float cos, sin;
};

// Columns of a head that make a pair; those that do not turn are paired with their neighbours.
struct PairColumns {
  int32_t first, second;
};

__device__ inline PairColumns ColumnsOf(const RopeView& rope, int32_t pair) {
  const int32_t half = rope.num_rotary / 2;
  if (rope.layout == RopeLayout::kHalfSplit && pair < half) return {pair, pair + half};
  return {2 * pair, 2 * pair + 1};
}

__device__ inline float PowF32(float base, float exponent) { return float(pow(double(base), double(exponent))); }

__device__ inline float InvFreq(const RopeView& rope, int32_t pair, int32_t length) {
  const bool beyond = length > rope.original_max_position;
  if (rope.rule == LengthRule::kLongRope && beyond) return rope.long_inv_freq[pair];
  if (rope.rule == LengthRule::kDynamicNtk && beyond) {
    const float n = float(rope.num_rotary);
    const float stretch = rope.factor * float(length) / float(rope.original_max_position) - (rope.factor - 1);
    return 1 / PowF32(rope.base * PowF32(stretch, n / (n - 2)), 2 * float(pair) / n);
  }
  return rope.inv_freq[pair];
}

// Reduced in f64 to [-pi/4, pi/4] (Cody and Waite 1980: pi/2 in two parts, exact to 2^-100 for up to 2^24 turns), then
// the Taylor series in f32.
__device__ inline Rotation CosSin(float angle) {
  constexpr double kTwoOverPi = 0.6366197723675814, kHalfPi = 1.5707963267948966, kHalfPiRest = 6.123233995736766e-17;
  const double quarters = rint(angle * kTwoOverPi);
  const float r = float(fma(-quarters, kHalfPiRest, fma(-quarters, kHalfPi, double(angle))));
  const float z = r * r;
  float s = fmaf(z, 1 / 362880.0f, -1 / 5040.0f);
  s = fmaf(z, s, 1 / 120.0f);
  s = fmaf(z, s, -1 / 6.0f);
  s = fmaf(r * z, s, r);
  float c = fmaf(z, -1 / 3628800.0f, 1 / 40320.0f);
  c = fmaf(z, c, -1 / 720.0f);
  c = fmaf(z, c, 1 / 24.0f);
  c = fmaf(z, c, -0.5f);
  c = fmaf(z, c, 1.0f);
  const int64_t quarter = int64_t(quarters);
  const float cos = quarter & 1 ? s : c, sin = quarter & 1 ? c : s;
  return {(quarter + 1) & 2 ? -cos : cos, quarter & 2 ? -sin : sin};
}

// Of a row at `position` of a sequence whose rope length is `length`. REQUIRES: 2 * pair < num_rotary.
__device__ inline Rotation RotationOf(const RopeView& rope, int32_t pair, int32_t position, int32_t length) {
  const Rotation turn = CosSin(float(position) * InvFreq(rope, pair, length));
  return {turn.cos * rope.attention_factor, turn.sin * rope.attention_factor};
}

__device__ inline float2 Rotate(float2 v, Rotation turn) {
  return {v.x * turn.cos - v.y * turn.sin, v.y * turn.cos + v.x * turn.sin};
}

}  // namespace sluice::cuda
