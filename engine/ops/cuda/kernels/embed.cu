#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/embed.h"
#include "engine/ops/cuda/kernels/weight_element.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

// blockIdx.x: row; blockIdx.y: kThreads of its columns.
template <class F>
__global__ void __launch_bounds__(kThreads) EmbedKernel(const __grid_constant__ EmbedArgs args) {
  const int32_t d = args.table.k, column = blockIdx.y * kThreads + threadIdx.x;
  if (column >= d) return;
  const int32_t source = args.sources == nullptr ? -1 : args.sources[blockIdx.x];
  const int32_t id = source < 0 ? args.ids[blockIdx.x] : args.drawn[source];
  const bool exists = id >= 0 && id < args.table.n;
  const float weight = WeightElement<F>(args.table, exists ? id : 0, column);
  const float value = exists ? weight * args.scale : NAN;
  float& x = args.x[int64_t{blockIdx.x} * d + column];
  x = args.accumulate ? __fadd_rn(x, value) : value;
}

template <class F>
void Launch(const EmbedArgs& args, Stream stream) {
  const dim3 grid(unsigned(args.num_rows), unsigned((args.table.k + kThreads - 1) / kThreads));
  SLUICE_LAUNCH(EmbedKernel<F>, grid, dim3(kThreads), 0, stream, args);
}

}  // namespace

void LaunchEmbed(const EmbedArgs& args, Stream stream) {
  if (args.num_rows == 0) return;
  if (args.table.format == TensorType::kF32) return Launch<F32Weights>(args, stream);
  VisitFormat(TileFormats(), args.table.format, [&]<class F>(F) { Launch<F>(args, stream); });
}

}  // namespace sluice::cuda
