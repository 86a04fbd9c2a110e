#include "engine/ops/cpu/kernels_simd.h"

namespace sluice {

constexpr LinearKernels kAvx512Kernels = MakeKernels(Isa::kAvx512);

}  // namespace sluice
