// The values that stored weights stand for: the definition every packed format and kernel is compared with.
#pragma once

#include <cstdint>

#include "engine/base/tensor_type.h"

namespace sluice {

// True for the types DequantizeRow takes: F32, F16, BF16, F8_E4M3 and every block-quantised type.
bool CanDequantize(TensorType type);

// Writes the values of `elems` consecutive elements stored at `src` (any alignment) to out[elems]. Each value comes
// from the float operations of GGUF's reference decoder in their order, none of them fused, so it is the same to the
// last bit on every machine. Layouts, with f16 scales d, dmin, m and q read from the block:
//   Q4_0 (q - 8) d            Q4_1 q d + m                 Q5_0 (q - 16) d    Q5_1 q d + m    Q8_0 q d
//   Q2_K (d sc) q - dmin mn   Q3_K (d (sc - 32)) (q - 4)   Q4_K, Q5_K (d sc) q - dmin mn
//   Q6_K (d sc) (q - 32)      MXFP4 2^(e - 128) times twice the 4-bit float
// REQUIRES: CanDequantize(type); elems >= 0 and a whole number of blocks.
void DequantizeRow(TensorType type, const uint8_t* src, int64_t elems, float* out);

}  // namespace sluice
