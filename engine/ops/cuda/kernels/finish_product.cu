#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/finish_product.h"
#include "engine/ops/cuda/kernels/gemm_product.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float4 WithBias(const GemmArgs& gemm, const float* y, int32_t column) {
  float4 v = LoadFour(y, column, gemm.w.n, true);
  if (gemm.bias != nullptr) {
    const float4 bias = LoadFour(gemm.bias, column, gemm.w.n, true);
    v = {v.x + bias.x, v.y + bias.y, v.z + bias.z, v.w + bias.w};
  }
  return v;
}

// blockIdx.x: row; blockIdx.y: 4 * kThreads of the result's columns.
__global__ void __launch_bounds__(kThreads)
    FinishProductKernel(const __grid_constant__ GemmArgs gemm, const float* y, int64_t y_stride) {
  const bool gated = gemm.epilogue == Epilogue::kGated;
  const int32_t width = gated ? gemm.w.n / 2 : gemm.w.n;
  const int32_t column = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x) * 4;
  if (column >= width) return;
  const int64_t row = blockIdx.x;
  float4 v = WithBias(gemm, y + row * y_stride, column);
  if (gated) {
    const float4 up = WithBias(gemm, y + row * y_stride, width + column);
    v = {ActivateGated(gemm, v.x, up.x), ActivateGated(gemm, v.y, up.y), ActivateGated(gemm, v.z, up.z),
         ActivateGated(gemm, v.w, up.w)};
  } else if (gemm.activate) {
    v = {Activate(gemm.activation, v.x), Activate(gemm.activation, v.y), Activate(gemm.activation, v.z),
         Activate(gemm.activation, v.w)};
  }
  const Element element = gemm.epilogue == Epilogue::kAccumulate ? Element::kF32 : gemm.out_element;
  StoreFour(gemm.out, element, row * gemm.out_stride, column, width, true, v);
}

}  // namespace

void LaunchFinishProduct(const GemmArgs& gemm, const float* y, int64_t y_stride, Stream stream) {
  if (gemm.m == 0 || gemm.w.n == 0) return;
  const int32_t width = gemm.epilogue == Epilogue::kGated ? gemm.w.n / 2 : gemm.w.n;
  const dim3 grid(static_cast<unsigned>(gemm.m), static_cast<unsigned>((width + 4 * kThreads - 1) / (4 * kThreads)));
  SLUICE_LAUNCH(FinishProductKernel, grid, dim3(kThreads), 0, stream, gemm, y, y_stride);
}

}  // namespace sluice::cuda
