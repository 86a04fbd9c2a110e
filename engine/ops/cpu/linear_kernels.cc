#include "engine/ops/cpu/linear_kernels.h"

#include "engine/base/check.h"
#include "engine/ops/cpu/linear_kernel_tables.h"

namespace sluice {

const LinearKernels& GetLinearKernels(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return kPortableKernels;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kAvx2Kernels;
    case Isa::kAvx2Vnni:
      return kAvx2VnniKernels;
    case Isa::kAvx512:
      return kAvx512Kernels;
#else
    default:
      break;
#endif
  }
  SLUICE_CHECK(!"an instruction set of another architecture");
  return kPortableKernels;
}

size_t ActivationRowBytes(ActivationType type, int64_t k) {
  switch (type) {
    case ActivationType::kInt8:
      return k / kBlock * sizeof(ActivationBlock<1>);
    case ActivationType::kInt16:
      return k / kBlock * sizeof(ActivationBlock<2>);
    case ActivationType::kF32:
      return k * sizeof(float);
  }
  return 0;
}

}  // namespace sluice
