#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/routing.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 128;

// Four columns a thread. blockIdx.x: row; blockIdx.y: 4 * kThreads of its columns.
__global__ void __launch_bounds__(kThreads) CombineKernel(const __grid_constant__ CombineArgs args, bool aligned) {
  const int32_t column = (blockIdx.y * kThreads + threadIdx.x) * 4, choices = args.num_experts_per_token;
  const int64_t row = blockIdx.x;
  float4 sum = {0, 0, 0, 0};
  for (int32_t c = 0; c < choices; ++c) {
    const int32_t place = args.row_places[row * choices + c];
    if (place < 0) continue;
    const float w = args.weights != nullptr ? args.weights[row * choices + c] : 1;
    const float4 y = LoadFour(args.y + int64_t{place} * args.d, column, args.d, aligned);
    sum = {fmaf(w, y.x, sum.x), fmaf(w, y.y, sum.y), fmaf(w, y.z, sum.z), fmaf(w, y.w, sum.w)};
  }
  if (args.shared != nullptr) {
    const float4 y = LoadFour(args.shared + row * args.d, column, args.d, aligned);
    sum = {sum.x + y.x, sum.y + y.y, sum.z + y.z, sum.w + y.w};
  }
  StoreFour(args.sum, Element::kF32, row * args.d, column, args.d, aligned, sum);
}

}  // namespace

void LaunchCombine(const CombineArgs& args, Stream stream) {
  if (args.num_rows == 0) return;
  const bool aligned = args.d % 4 == 0 && IsAligned(args.y) && IsAligned(args.shared) && IsAligned(args.sum);
  const dim3 grid(unsigned(args.num_rows), unsigned((args.d + 4 * kThreads - 1) / (4 * kThreads)));
  SLUICE_LAUNCH(CombineKernel, grid, dim3(kThreads), 0, stream, args, aligned);
}

}  // namespace sluice::cuda
