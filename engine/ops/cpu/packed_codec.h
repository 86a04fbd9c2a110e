// Single values in and out of the packed form (packed_format.h): packing, unpacking, and the portable kernels.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/tensor_type.h"
#include "engine/ops/cpu/packed_format.h"

namespace sluice {

// PackedFormatOf(type), looked up.
const PackedFormat& GetPackedFormat(TensorType type);

// The type in whose packed form weights of `type` are kept; nothing for types that are no weights (integers, F64).
std::optional<TensorType> PackedTypeFor(TensorType type);

// Bytes of a panel of rows of k values. REQUIRES: k a multiple of the type's block.
int64_t PanelBytes(TensorType type, int64_t k);

// Writes one stored row of `type` (k values) as lane `lane` of a panel of packed type `packed`, whose lane is still
// zero. `packed` is PackedTypeFor(type), or kF32.
void PackLane(TensorType type, const uint8_t* row, int64_t k, TensorType packed, int lane, uint8_t* panel);

// Writes lane `lane` of a panel to out[k].
void UnpackLane(TensorType packed, const uint8_t* panel, int64_t k, int lane, float* out);

// A block of 32 k of a lane of a quantised panel: w = scale[sub] * (code - zero), or scale[0] * code + offset.
struct LaneBlock {
  int code[kBlock];
  float scale[2];  // per 16 k; equal where the type has one per 32
  float offset;    // 0 unless affine
};
LaneBlock ReadLaneBlock(TensorType packed, const uint8_t* panel, int64_t block, int lane);

// Value `k` of a lane of a panel of plain floats.
float ReadLaneFloat(TensorType packed, const uint8_t* panel, int64_t k, int lane);

// The weight that code `k` of the block stands for.
inline float LaneBlockValue(const PackedFormat& format, const LaneBlock& block, int k) {
  const float scaled = block.scale[k / 16] * static_cast<float>(block.code[k] - format.zero);
  return format.affine ? scaled + block.offset : scaled;
}

}  // namespace sluice
