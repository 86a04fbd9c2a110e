#include "engine/ops/cuda/kernels/skinny_gemm.cuh"
#include "engine/ops/cuda/kernels/tiled_gemm.cuh"

namespace sluice::cuda {

template void LaunchSkinny<Q8_0Weights>(const Product& product, int32_t tokens, Stream stream);
template void LaunchTiled<Q8_0Weights>(const Product& product, int32_t tokens, Stream stream);

}  // namespace sluice::cuda
