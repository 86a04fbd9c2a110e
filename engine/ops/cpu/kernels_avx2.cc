#include "engine/ops/cpu/kernels_simd.h"

namespace sluice {

constexpr LinearKernels kAvx2Kernels = MakeKernels(Isa::kAvx2);

}  // namespace sluice
