// The arithmetic that all kernels over packed tiles share, so that they give the same bits.
//
// K is cut into kSlices runs of whole K tiles. A slice's sum starts at 0 and takes the mma instructions of its steps in
// ascending order; the result is the sum of the slices, ascending, starting at 0. All of that is fixed by the format
// and k alone. Columns of an mma (tokens) do not see each other.
//
//   k tiles of 64, k = 576:    | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7   8 |    SliceStart: 0 1 2 3 4 5 6 7 9
//   of 256 (K-quants), 1024:   | | 0 | | 1 | | 2 | | 3 |                SliceStart: 0 0 1 1 2 2 3 3 4; four are empty
//   result = (((s0 + s1) + s2) + ..) + s7
//
// Worked example: a row of Q4_1, w = d q + m with d = 0.5, m = -1; codes 2 and 3 meet x = 1 and 2, all other x are 0.
//   exact: (0.5 * 2 - 1) * 1 + (0.5 * 3 - 1) * 2 = 1
//   operands are 128 + q (weight_tiles.cuh): partial = 130 * 1 + 131 * 2 = 392; x_sums = 1 + 2 = 3
//   ScalesOf: scale 0.5, min = m - 128 d = -65;  sum = 0.5 * 392 - 65 * 3 = 1
#pragma once

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/weight_tiles.cuh"

namespace sluice::cuda {

inline constexpr int kSlices = 8;

// First K tile of a slice, of `k_tiles`.
__device__ __forceinline__ int32_t SliceStart(int32_t slice, int32_t k_tiles) {
  return static_cast<int32_t>(int64_t{slice} * k_tiles / kSlices);
}

// One block of F::kBlock values of k. x(t, j): the lane's values 16 j + 4 q + {0, 1, 2, 3} of token 8 t + g in this
// step, bf16.
template <class F, int block, int kRowTiles, int kTokenTiles, class X>
__device__ __forceinline__ void MultiplyBlock(const typename F::Header (&headers)[kRowTiles],
                                              const typename F::Payload (&payloads)[kRowTiles], const X& x,
                                              float (&sums)[kRowTiles][kTokenTiles][4]) {
  constexpr int kMmas = F::kBlock / 16;
  constexpr int j0 = block * kMmas;
  uint32_t a[kRowTiles][kMmas][4];
  RowScales scales[kRowTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    F::template Operand<j0>(payloads[r], a[r][0]);
    if constexpr (kMmas == 2) F::template Operand<j0 + 1>(payloads[r], a[r][1]);
    scales[r] = F::ScalesOf(headers[r], payloads[r], block);
  }
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    uint2 b[kMmas];
#pragma unroll
    for (int i = 0; i < kMmas; ++i) b[i] = x(t, j0 + i);
    float x_sums[4] = {};
    if constexpr (F::kHasMin) {
      const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
#pragma unroll
      for (int i = 0; i < kMmas; ++i) F::Mma(x_sums, ones, b[i]);
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      float(&sum)[4] = sums[r][t];
      if constexpr (F::kScaled) {
        float partial[4] = {};
#pragma unroll
        for (int i = 0; i < kMmas; ++i) F::Mma(partial, a[r][i], b[i]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sum[i] = fmaf(i < 2 ? scales[r].low : scales[r].high, partial[i], sum[i]);
          if constexpr (F::kHasMin) sum[i] = fmaf(i < 2 ? scales[r].low_min : scales[r].high_min, x_sums[i], sum[i]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kMmas; ++i) F::Mma(sum, a[r][i], b[i]);
      }
    }
  }
}

// sums += the step's product. Lane 4 g + q has of row tile r and token tile t the rows g (0, 1) and g + 8 (2, 3) and
// the tokens 2 q (0, 2) and 2 q + 1 (1, 3).
template <class F, int kRowTiles, int kTokenTiles, class X>
__device__ __forceinline__ void MultiplyStep(const typename F::Header (&headers)[kRowTiles],
                                             const typename F::Payload (&payloads)[kRowTiles], const X& x,
                                             float (&sums)[kRowTiles][kTokenTiles][4]) {
  MultiplyBlock<F, 0>(headers, payloads, x, sums);
  MultiplyBlock<F, 1>(headers, payloads, x, sums);
  if constexpr (F::kBlock == 16) {
    MultiplyBlock<F, 2>(headers, payloads, x, sums);
    MultiplyBlock<F, 3>(headers, payloads, x, sums);
  }
}

}  // namespace sluice::cuda
