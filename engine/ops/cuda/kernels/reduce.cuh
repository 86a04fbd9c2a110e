// Reductions over the lanes of a warp and the threads of a block. Their order depends on the number of threads only.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/ops/cuda/kernels/cuda_language.h"

namespace sluice::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// For any T of whole words.
template <class T>
__device__ __forceinline__ T ShuffleXor(T value, int lanes) {
  using Word = std::conditional_t<sizeof(T) % 8 == 0, unsigned long long, unsigned>;
  static_assert(sizeof(T) % sizeof(Word) == 0);
  Word words[sizeof(T) / sizeof(Word)];
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (Word& word : words) word = __shfl_xor_sync(kAllLanes, word, lanes);
  memcpy(&value, words, sizeof(T));
  return value;
}

// `op` is commutative; every lane gets the same bits. All 32 lanes call.
template <class T, class Op>
__device__ __forceinline__ T WarpReduce(T value, Op op) {
#pragma unroll
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2) value = op(value, ShuffleXor(value, lanes));
  return value;
}

// Likewise over a block of 32 * kWarps threads, warps ascending. `partials` lies in shared memory and may be used again
// at once.
template <int kWarps, class T, class Op>
__device__ __forceinline__ T BlockReduce(T value, Op op, T (&partials)[kWarps]) {
  value = WarpReduce(value, op);
  if (threadIdx.x % kWarpLanes == 0) partials[threadIdx.x / kWarpLanes] = value;
  __syncthreads();
  value = partials[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) value = op(value, partials[i]);
  __syncthreads();
  return value;
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace sluice::cuda
