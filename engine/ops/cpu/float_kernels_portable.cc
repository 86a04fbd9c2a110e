#define SLUICE_VEC 0
#include "engine/ops/cpu/float_kernels_simd.h"

namespace sluice {

constexpr FloatKernels kPortableFloatKernels = MakeFloatKernels(Isa::kPortable);

}  // namespace sluice
