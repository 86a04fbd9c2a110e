// The largest of many (value, token) pairs, and the noise that makes it a draw.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/reduce.cuh"
#include "engine/ops/sampling_noise.h"

namespace sluice::cuda {

inline constexpr int32_t kNoToken = INT32_MAX;

struct BestToken {
  float value = -INFINITY;
  int32_t token = kNoToken;
};

// The larger value, the lower id on ties. NaN never wins against a value.
struct Better {
  __device__ BestToken operator()(const BestToken& a, const BestToken& b) const {
    if (b.value > a.value) return b;
    return b.value == a.value && b.token < a.token ? b : a;
  }
};

// A NaN or +inf: what makes a row not finite.
__device__ __forceinline__ bool IsBad(float logit) { return !(logit < INFINITY); }

// At least GumbelFromBits(bits), and near it where that is large. With u = (bits + 0.5) / 2^32:
//   -log(-log u) <= -log(1 - u) = 32 ln 2 - ln 2 * log2(w), w = ~bits + 0.5,
// and log2(w) >= exponent + mantissa - 1 of w as a float: its bits read as an integer, scaled. Dropping the last bit of
// ~bits is on the safe side; 1e-3 covers all roundings.
__device__ __forceinline__ float GumbelBound(uint32_t bits) {
  constexpr float kLn2 = 0.69314718f;
  const float w = fmaf(float(int(~bits >> 1)), 2.0f, 0.5f);
  return fmaf(float(__float_as_int(w)), -kLn2 / 8388608.0f, (32 + 127) * kLn2 + 1e-3f);
}

// Finds the largest value + noise of a row without computing the noise, two logarithms in f64, of more than a few
// tokens: first the largest upper bound, then the exact sum of its token, then those of the tokens whose bounds reach
// it.
struct NoisyRow {
  uint64_t seed;
  int64_t position;
  __device__ float Bound(float value, int32_t token) const {
    return __fadd_rn(value, GumbelBound(SampleBits(seed, position, token)));
  }
  __device__ float Exact(float value, int32_t token) const {
    return __fadd_rn(value, GumbelFromBits(SampleBits(seed, position, token)));
  }
};

}  // namespace sluice::cuda
