// The kernel tables that are built, and how a kernel file fills one from its two tile templates.
#pragma once

#include "engine/ops/cpu/linear_kernels.h"

namespace sluice {

extern const LinearKernels kPortableKernels;
extern const LinearKernels kAvx2Kernels;
extern const LinearKernels kAvx2VnniKernels;
extern const LinearKernels kAvx512Kernels;

}  // namespace sluice

// One row of LinearKernels::tile, in the order of PackedType.
#define SLUICE_INTEGER_TILES(Tile, digits)                                                                           \
  {                                                                                                                  \
    Tile<PackedType::kQ4_0, digits>, Tile<PackedType::kQ4_1, digits>, Tile<PackedType::kQ5_0, digits>,               \
        Tile<PackedType::kQ5_1, digits>, Tile<PackedType::kQ8_0, digits>, Tile<PackedType::kQ4_K, digits>,           \
        Tile<PackedType::kQ5_K, digits>, Tile<PackedType::kQ6_K, digits>, Tile<PackedType::kMXFP4, digits>, nullptr, \
        nullptr, nullptr                                                                                             \
  }
#define SLUICE_FLOAT_TILES(Tile)                                                                            \
  {                                                                                                         \
    Tile<PackedType::kQ4_0>, Tile<PackedType::kQ4_1>, Tile<PackedType::kQ5_0>, Tile<PackedType::kQ5_1>,     \
        Tile<PackedType::kQ8_0>, Tile<PackedType::kQ4_K>, Tile<PackedType::kQ5_K>, Tile<PackedType::kQ6_K>, \
        Tile<PackedType::kMXFP4>, Tile<PackedType::kF32>, Tile<PackedType::kF16>, Tile<PackedType::kBF16>   \
  }
