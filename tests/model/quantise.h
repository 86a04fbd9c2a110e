// Matrices of small models as blocks, for tests of what quantised weights mean.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/tensor_view.h"

namespace sluice::testing {

// A matrix, or several, of plain numbers whose rows are whole blocks of 32. A bias is a vector, also where there are
// many of them.
bool CanQuantise(const TensorView& tensor);

// Makes `tensor` one of `type`, kQ8_0 or kQ4_1, whose bytes are in `bytes`: every value is rounded to the nearest of
// the block. REQUIRES: CanQuantise(*tensor).
void Quantise(TensorType type, TensorView* tensor, std::vector<uint8_t>* bytes);

// Makes `values` the f32 that the blocks of `tensor` stand for, which are in `bytes`.
void Dequantise(const TensorView& tensor, TensorView* values, std::vector<uint8_t>* bytes);

}  // namespace sluice::testing
