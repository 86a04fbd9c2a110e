// Weight matrices as the kernels read them: formats, and how the host lays them out once at load.
#pragma once

#include <cstdint>

namespace sluice::cuda {

enum class WeightFormat : uint8_t { kF32, kBF16, kF16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ4_K, kQ6_K };

// [n, k] in device memory, in the layout of weight_layout.h, which PackedBytes / PackWeights (weight_packing.h) make.
struct WeightMatrix {
  const void* data = nullptr;  // 256-byte aligned
  WeightFormat format = WeightFormat::kBF16;
  int32_t n = 0, k = 0;
  bool gated = false;  // rows of gate and up, n/2 each, taking turns in groups of 8: 8 of gate, the same 8 of up, ...
};

}  // namespace sluice::cuda
