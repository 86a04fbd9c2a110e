// A tensor that somebody else owns: where its bytes are, how they are stored, its shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/tensor_type.h"

namespace sluice {

struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;      // outermost first, as Hugging Face writes it: a linear weight is [out, in]
  absl::Span<const uint8_t> data;  // row-major, no alignment guaranteed

  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

}  // namespace sluice
