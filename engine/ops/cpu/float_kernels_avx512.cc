#define SLUICE_VEC 512
#include "engine/ops/cpu/float_kernels_simd.h"

namespace sluice {

constexpr FloatKernels kAvx512FloatKernels = MakeFloatKernels(Isa::kAvx512);

}  // namespace sluice
