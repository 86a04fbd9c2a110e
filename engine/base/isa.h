// The instruction sets that kernels are built for. Apart from cpu_info.h so that kernel files include no library code.
#pragma once

namespace sluice {

// In ascending order of speed. All give the same bits.
enum class Isa {
  kPortable,
  kAvx2,      // AVX2, FMA, F16C
  kAvx2Vnni,  // and AVX-VNNI
  kAvx512,    // AVX-512 F, BW, VL, DQ, VNNI, and AVX2, FMA, F16C
};

}  // namespace sluice
