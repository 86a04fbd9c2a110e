#define SLUICE_VEC 256
#include "engine/ops/cpu/float_kernels_simd.h"

namespace sluice {

constexpr FloatKernels kAvx2FloatKernels = MakeFloatKernels(Isa::kAvx2);

}  // namespace sluice
