// Where the sums of 16 query rows go: partial results in f32, running totals, or rows of the output.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/attention_plan.cuh"
#include "engine/ops/cuda/kernels/attention_rows.cuh"
#include "engine/ops/cuda/kernels/attention_tile.cuh"
#include "engine/ops/cuda/kernels/cuda_language.h"

namespace sluice::cuda {

// The partial result of a head in a slot: O, then m and l.
__device__ inline float* PartialOf(const AttentionKernelArgs& args, int32_t slot, int32_t head, int32_t value_dim) {
  return args.partials + (int64_t{slot} * args.num_heads + head) * AttentionPartialStride(value_dim);
}

// heads: of the lane's two rows, or -1. The warp has kColumns of kValueDim values, from first_column on.
template <int kValueDim, int kColumns>
__device__ void StorePartial(const AttentionKernelArgs& args, int32_t slot, const int32_t (&heads)[2],
                             const ItemState<kColumns>& state, int first_column = 0) {
  const int column = first_column + threadIdx.x % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (heads[r] < 0) continue;
    float* to = PartialOf(args, slot, heads[r], kValueDim);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      *reinterpret_cast<float2*>(to + n * 8 + column) = {state.values[n][2 * r], state.values[n][2 * r + 1]};
    }
    if (column == 0) *reinterpret_cast<float2*>(to + kValueDim) = {state.rows[r].max, state.rows[r].sum};
  }
}

// The item joins the rows' totals. Between items the values of the lane's two rows wait at stored[row], those of
// successive 8 columns `stride` apart, where no other lane looks; null: nowhere. After the last item state.values are
// the total's.
template <int kColumns>
__device__ void JoinTotal(float2* const (&stored)[2], int stride, bool first, bool last, SoftmaxState (&total)[2],
                          ItemState<kColumns>& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const MergeFactors factors = Merge(total[r], state.rows[r]);
    const auto merge = [&](int n, float2 before) {
      state.values[n][2 * r] = Merge(before.x, state.values[n][2 * r], factors);
      state.values[n][2 * r + 1] = Merge(before.y, state.values[n][2 * r + 1], factors);
    };
    if (first) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) merge(n, {0, 0});
    } else if (stored[r] != nullptr) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) merge(n, stored[r][n * stride]);
    }
    if (last || stored[r] == nullptr) continue;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      stored[r][n * stride] = {state.values[n][2 * r], state.values[n][2 * r + 1]};
    }
  }
}

// Rows of the output, in bf16: of each of the lane's two rows its place in the step and its head, or -1. Columns as
// above.
template <int kValueDim, int kColumns>
__device__ void StoreRows(const AttentionKernelArgs& args, const int32_t (&rows)[2], const int32_t (&heads)[2],
                          const SoftmaxState (&total)[2], const ItemState<kColumns>& state, int first_column = 0) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (heads[r] < 0) continue;
    const float factor = FinalFactor(total[r], args.sinks, heads[r]);
    __nv_bfloat16* to = static_cast<__nv_bfloat16*>(args.out) +
                        (int64_t{rows[r]} * args.row_heads + heads[r]) * kValueDim + first_column + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      *reinterpret_cast<__nv_bfloat162*>(to + n * 8) =
          __floats2bfloat162_rn(state.values[n][2 * r] * factor, state.values[n][2 * r + 1] * factor);
    }
  }
}

}  // namespace sluice::cuda
