#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/routing.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 128;
// Loads that do not wait for one another: of the places and weights of so many choices, then of so many of their rows.
constexpr int kChoicesAtOnce = 8, kRowsAtOnce = 4;

// Four columns a thread. blockIdx.x: row; blockIdx.y: 4 * kThreads of its columns.
__global__ void __launch_bounds__(kThreads) CombineKernel(const __grid_constant__ CombineArgs args, bool aligned) {
  const int32_t column = (blockIdx.y * kThreads + threadIdx.x) * 4, choices = args.num_experts_per_token;
  const int64_t row = blockIdx.x;
  float4 sum = {0, 0, 0, 0}, shared = sum;
  if (args.shared != nullptr) shared = LoadFour(args.shared + row * args.d, column, args.d, aligned);
  for (int32_t first = 0; first < choices; first += kChoicesAtOnce) {
    int32_t places[kChoicesAtOnce];
    float weights[kChoicesAtOnce];
#pragma unroll
    for (int i = 0; i < kChoicesAtOnce; ++i) {
      const bool exists = first + i < choices;
      const int64_t choice = row * choices + first + i;
      places[i] = exists ? args.row_places[choice] : -1;
      weights[i] = exists && args.weights != nullptr ? args.weights[choice] : 1;
    }
#pragma unroll
    for (int i = 0; i < kChoicesAtOnce; i += kRowsAtOnce) {
      float4 y[kRowsAtOnce];
#pragma unroll
      for (int j = 0; j < kRowsAtOnce; ++j) {
        if (places[i + j] >= 0) y[j] = LoadFour(args.y + int64_t{places[i + j]} * args.d, column, args.d, aligned);
      }
#pragma unroll
      for (int j = 0; j < kRowsAtOnce; ++j) {
        if (places[i + j] < 0) continue;
        const float w = weights[i + j];
        sum = {fmaf(w, y[j].x, sum.x), fmaf(w, y[j].y, sum.y), fmaf(w, y[j].z, sum.z), fmaf(w, y[j].w, sum.w)};
      }
    }
  }
  if (args.shared != nullptr) sum = {sum.x + shared.x, sum.y + shared.y, sum.z + shared.z, sum.w + shared.w};
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
