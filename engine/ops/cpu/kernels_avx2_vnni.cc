#include "engine/ops/cpu/kernels_simd.h"

namespace sluice {

constexpr LinearKernels kAvx2VnniKernels = MakeKernels(Isa::kAvx2Vnni);

}  // namespace sluice
