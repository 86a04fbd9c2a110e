#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/sample.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float Finish(float logit, float scale, float softcap) {
  logit = __fmul_rn(logit, scale);
  return softcap > 0 ? softcap * tanhf(logit / softcap) : logit;
}

__global__ void __launch_bounds__(kThreads)
    FinishKernel(float* logits, int64_t count, float scale, float softcap, bool aligned) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (aligned && first + 4 <= count) {
    float4& v = *reinterpret_cast<float4*>(logits + first);
    const float4 l = v;
    v = {Finish(l.x, scale, softcap), Finish(l.y, scale, softcap), Finish(l.z, scale, softcap),
         Finish(l.w, scale, softcap)};
    return;
  }
  for (int64_t i = first; i < first + 4 && i < count; ++i) logits[i] = Finish(logits[i], scale, softcap);
}

}  // namespace

void LaunchFinishLogits(float* logits, int64_t count, float scale, float softcap, Stream stream) {
  if (count == 0 || (scale == 1 && softcap == 0)) return;
  const int64_t blocks = (count + 4 * kThreads - 1) / (4 * kThreads);
  SLUICE_LAUNCH(FinishKernel, dim3(unsigned(blocks)), dim3(kThreads), 0, stream, logits, count, scale, softcap,
                IsAligned(logits));
}

}  // namespace sluice::cuda
