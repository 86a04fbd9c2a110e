#include "engine/ops/cuda/kernels/skinny_gemm.cuh"

namespace sluice::cuda {

template void LaunchSkinny<Q4_KWeights>(const Product& product, int32_t tokens, Stream stream);

}  // namespace sluice::cuda
