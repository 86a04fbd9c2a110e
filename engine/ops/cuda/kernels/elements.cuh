// Rows of f32, of Element and of cached values, a few columns at a time.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

struct alignas(8) FourBf16 {
  __nv_bfloat162 low, high;
};

__device__ __forceinline__ FourBf16 ToBf16(float4 v) {
  return {__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w)};
}

__device__ __forceinline__ void StoreElement(void* to, Element element, int64_t index, float value) {
  if (element == Element::kF32) {
    static_cast<float*>(to)[index] = value;
  } else {
    static_cast<__nv_bfloat16*>(to)[index] = __float2bfloat16(value);
  }
}

// Columns `column` to `column` + 3 of a row of d, zeros after its end. `aligned`: the row is, to 16 bytes, and d is a
// multiple of 4.
__device__ __forceinline__ float4 LoadFour(const float* row, int32_t column, int32_t d, bool aligned) {
  if (aligned) return column < d ? *reinterpret_cast<const float4*>(row + column) : float4{0, 0, 0, 0};
  const auto at = [&](int32_t i) { return i < d ? row[i] : 0.0f; };
  return {at(column), at(column + 1), at(column + 2), at(column + 3)};
}

// Writes those of the four columns that exist. `aligned` speaks of the whole matrix at `to`; `first` is where its row
// begins.
__device__ __forceinline__ void StoreFour(void* to, Element element, int64_t first, int32_t column, int32_t d,
                                          bool aligned, float4 v) {
  if (column >= d) return;
  if (aligned && element == Element::kF32) {
    *reinterpret_cast<float4*>(static_cast<float*>(to) + first + column) = v;
  } else if (aligned) {
    *reinterpret_cast<FourBf16*>(static_cast<__nv_bfloat16*>(to) + first + column) = ToBf16(v);
  } else {
    const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i < d) StoreElement(to, element, first + column + i, values[i]);
    }
  }
}

__device__ inline float Widen(float x) { return x; }
__device__ inline float Widen(__half x) { return __half2float(x); }
__device__ inline float Widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float Widen(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

template <class T>
struct alignas(8 * sizeof(T) < 16 ? 8 * sizeof(T) : 16) Eight {
  T values[8];
};

inline bool IsAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace sluice::cuda
