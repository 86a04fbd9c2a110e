// The tables that are built, one file per instruction set.
#pragma once

#include "engine/ops/cpu/float_kernels.h"

namespace sluice {

extern const FloatKernels kPortableFloatKernels;
extern const FloatKernels kAvx2FloatKernels;
extern const FloatKernels kAvx512FloatKernels;

}  // namespace sluice
