#include "engine/ops/cpu/float_kernels.h"

#include "engine/base/check.h"
#include "engine/ops/cpu/float_kernel_tables.h"

namespace sluice {

const FloatKernels& GetFloatKernels(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return kPortableFloatKernels;
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvx2Vnni:
      return kAvx2FloatKernels;
    case Isa::kAvx512:
      return kAvx512FloatKernels;
#else
    default:
      break;
#endif
  }
  SLUICE_CHECK(!"an instruction set of another architecture");
  return kPortableFloatKernels;
}

}  // namespace sluice
