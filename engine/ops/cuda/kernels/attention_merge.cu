// Merges the items of rows that were taken apart: a warp for each row and head, items in ascending order.
//
//   partials: slot 3 | head 0: O0 O1 .. m l - - | head 1: .. |    item 0 of the row
//             slot 4 | head 0: O0 O1 .. m l - - | head 1: .. |    item 1;  `stride` floats between the same heads
//
// Worked example: a head with value_dim 1, two items.
//   item 0: m = 1, l = 2, O = 4            total: m = 1, l = 2, O = 4
//   item 1: m = 3, l = 1, O = 8            m = 3, factors 2^(1 - 3) = 0.25 and 2^0 = 1
//                                          l = 0.25 * 2 + 1 = 1.5, O = 0.25 * 4 + 8 = 9, out = 9 / 1.5 = 6
// In units of 2^0 that is (2 * 4 + 8 * 8) / (2 * 2 + 8 * 1) = 72 / 12.
#include <algorithm>

#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "engine/ops/cuda/kernels/attention_output.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kValuesPerLane = 4;
constexpr int kItemsAtOnce = 4;

__device__ void MergeRow(const AttentionKernelArgs& args, const AttentionMerge& merge, int32_t head) {
  const int32_t value_dim = ValueDim(args);
  const float* first = PartialOf(args, merge.first_slot, head, value_dim);
  const int64_t stride = args.num_heads * AttentionPartialStride(value_dim);
  __nv_bfloat16* out = static_cast<__nv_bfloat16*>(args.out) + (int64_t{merge.row} * args.row_heads + head) * value_dim;
  for (int32_t d = threadIdx.x % 32 * kValuesPerLane; d < value_dim; d += 32 * kValuesPerLane) {
    SoftmaxState total;
    float values[kValuesPerLane] = {};
    for (int32_t begin = 0; begin < merge.num_items; begin += kItemsAtOnce) {
      // Of items that may not be there; those are not merged.
      float2 states[kItemsAtOnce];
      float4 parts[kItemsAtOnce];
#pragma unroll
      for (int i = 0; i < kItemsAtOnce; ++i) {
        const float* partial = first + min(begin + i, merge.num_items - 1) * stride;
        states[i] = *reinterpret_cast<const float2*>(partial + value_dim);
        parts[i] = *reinterpret_cast<const float4*>(partial + d);
      }
#pragma unroll
      for (int i = 0; i < kItemsAtOnce; ++i) {
        if (begin + i >= merge.num_items) break;
        const MergeFactors factors = Merge(total, {states[i].x, states[i].y});
        const float added[kValuesPerLane] = {parts[i].x, parts[i].y, parts[i].z, parts[i].w};
#pragma unroll
        for (int v = 0; v < kValuesPerLane; ++v) values[v] = Merge(values[v], added[v], factors);
      }
    }
    const float factor = FinalFactor(total, args.sinks, head);
    *reinterpret_cast<uint2*>(out + d) = {WordOf(__floats2bfloat162_rn(values[0] * factor, values[1] * factor)),
                                          WordOf(__floats2bfloat162_rn(values[2] * factor, values[3] * factor))};
  }
}

__global__ void __launch_bounds__(kWarps * 32) MergeKernel(const __grid_constant__ AttentionKernelArgs args) {
  ptx::griddepcontrol_wait();  // for the partial results
  const AttentionPlanView plan(args.plan);
  const int64_t work = int64_t{args.plan.counts[kNumMerges]} * args.num_heads;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < work; i += int64_t{gridDim.x} * kWarps) {
    MergeRow(args, plan.merges[i / args.num_heads], static_cast<int32_t>(i % args.num_heads));
  }
}

}  // namespace

void LaunchMergeAttention(const AttentionKernelArgs& args, Stream stream) {
  const int64_t blocks = (int64_t{args.step.num_seqs} * args.num_heads + kWarps - 1) / kWarps;
  SLUICE_LAUNCH_DEPENDENT(MergeKernel, dim3(static_cast<unsigned>(std::min<int64_t>(blocks, 8 * args.num_sms))),
                          dim3(kWarps * 32), 0, stream, args);
}

}  // namespace sluice::cuda
