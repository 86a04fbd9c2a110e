// Single values of a packed matrix, for embeddings: equal to the last bit to what DequantizeRow
// (engine/base/dequantize.h) makes of the file's bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/weight_layout.h"

namespace sluice::cuda {

template <class T>
__device__ __forceinline__ T At(const std::byte* start, int index) {
  return reinterpret_cast<const T*>(start)[index];
}

__device__ __forceinline__ float HalfAt(const std::byte* start, int index) {
  return __half2float(__ushort_as_half(At<uint16_t>(start, index)));
}

// The 6-bit scale and minimum of block `block` of a row's Q4_K header, as d * scale and dmin * minimum.
__device__ __forceinline__ float2 Q4_KScaleAndMin(const std::byte* row_header, int block) {
  const uint8_t* s = reinterpret_cast<const uint8_t*>(row_header) + 4;
  const int scale = block < 4 ? s[block] & 63 : (s[block + 4] & 15) | s[block - 4] >> 6 << 4;
  const int min = block < 4 ? s[block + 4] & 63 : s[block + 4] >> 4 | s[block] >> 6 << 4;
  return make_float2(HalfAt(row_header, 0) * static_cast<float>(scale),
                     HalfAt(row_header, 1) * static_cast<float>(min));
}

// REQUIRES: 0 <= row < matrix.n, 0 <= k < matrix.k; not gated.
__device__ inline float WeightValue(const WeightMatrix& matrix, int32_t row, int32_t k) {
  const std::byte* data = static_cast<const std::byte*>(matrix.data);
  const int32_t row_tile = row / kTileRows;
  const int r = row % kTileRows, g = r % 8, row_half = r / 8;
  if (matrix.format == WeightFormat::kF32) {
    return reinterpret_cast<const float*>(data)[(int64_t{row_tile} * matrix.k + k) * kTileRows + r];
  }
  const TileLayout layout = TileLayoutOf(matrix.format);
  const std::byte* header = data + (int64_t{row_tile} * KTiles(layout, matrix.k) + k / layout.k()) * layout.bytes();
  const int kk = k % layout.k(), step = kk / kStepK, block = kk / 32;
  const std::byte* payload = header + layout.header_bytes + step * layout.payload_bytes;
  const FragmentPlace p = FragmentPlaceOf(r, kk % kStepK);
  const int scale = (g * 2 + row_half) * 2 + block;  // of the formats with blocks of 32
  const auto nibble = [&] {
    return static_cast<int>(At<uint32_t>(payload, p.lane * 4 + p.mma) >> 4 * (p.reg + 4 * p.half) & 15);
  };
  switch (matrix.format) {
    case WeightFormat::kF32:
      break;
    case WeightFormat::kBF16:
      return __bfloat162float(
          __ushort_as_bfloat16(At<uint16_t>(payload, ((p.mma * 32 + p.lane) * 4 + p.reg) * 2 + p.half)));
    case WeightFormat::kF16:
      return HalfAt(payload, ((p.mma * 32 + p.lane) * 4 + p.reg) * 2 + p.half);
    case WeightFormat::kQ8_0: {
      const int q = At<uint8_t>(payload, (p.mma / 2 * 32 + p.lane) * 16 + p.mma % 2 * 8 + p.reg * 2 + p.half);
      return static_cast<float>(q - 128) * HalfAt(header, scale);
    }
    case WeightFormat::kQ4_0:
      return static_cast<float>(nibble() - 8) * HalfAt(header, scale);
    case WeightFormat::kQ4_1:
      return __fadd_rn(__fmul_rn(static_cast<float>(nibble()), HalfAt(header, 2 * scale)),
                       HalfAt(header, 2 * scale + 1));
    case WeightFormat::kQ5_0: {
      const uint32_t fifth = At<uint32_t>(payload + 512, p.lane) >> (4 * p.mma + p.reg + 16 * p.half) & 1;
      return static_cast<float>(nibble() + static_cast<int>(fifth << 4) - 16) * HalfAt(header, scale);
    }
    case WeightFormat::kQ4_K: {
      const float2 s = Q4_KScaleAndMin(header + r * 16, block);
      return __fsub_rn(__fmul_rn(s.x, static_cast<float>(nibble())), s.y);
    }
    case WeightFormat::kQ6_K: {
      const uint32_t upper =
          At<uint32_t>(payload + 512, p.lane * 2 + p.mma / 2) >> (8 * (p.mma % 2) + 2 * p.reg + 16 * p.half) & 3;
      const float d = HalfAt(header + 256, r) * static_cast<float>(At<int8_t>(header, r * 16 + kk / 16));
      return d * static_cast<float>(nibble() + static_cast<int>(upper << 4) - 32);
    }
  }
  return 0;
}

}  // namespace sluice::cuda
