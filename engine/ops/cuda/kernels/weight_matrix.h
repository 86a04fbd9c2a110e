// A weight matrix as the kernels read it.
#pragma once

#include <cstdint>

#include "engine/base/tensor_type.h"

namespace sluice::cuda {

// [n, k] in device memory, in the layout of weight_layout.h, which PackedBytes / PackWeights (weight_packing.h) make.
struct WeightMatrix {
  const void* data = nullptr;             // 256-byte aligned
  TensorType format = TensorType::kBF16;  // one with HasGpuForm (engine/base/tensor_format.h)
  int32_t n = 0, k = 0;
  bool gated = false;  // rows of gate and up, n/2 each, taking turns in groups of 8: 8 of gate, the same 8 of up, ...
};

}  // namespace sluice::cuda
