// Single values of packed weight matrices, for kernels that read a row here and there.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/weight_format.h"
#include "engine/ops/cuda/kernels/weight_layout.h"

namespace sluice::cuda {

// Row `row`, column `column` of a matrix that is not gated. f32, as engine/base/dequantize.h gives it.
__device__ inline float WeightElement(const WeightMatrix& w, int32_t row, int32_t column) {
  const int r = row % kTileRows;
  const int64_t row_tile = row / kTileRows;
  if (w.format == WeightFormat::kF32) {
    return static_cast<const float*>(w.data)[(row_tile * w.k + column) * kTileRows + r];
  }
  const TileLayout layout = TileLayoutOf(w.format);
  const int64_t tile = row_tile * KTiles(layout, w.k) + column / layout.k();
  const uint8_t* header = static_cast<const uint8_t*>(w.data) + tile * layout.bytes();
  const int k = column % layout.k(), block = k % kStepK / 32;
  const uint8_t* payload = header + layout.header_bytes + k / kStepK * layout.payload_bytes;
  const FragmentPlace at = FragmentPlaceOf(r, k % kStepK);
  const int row_place = r % 8 * 2 + r / 8;
  const int scale = row_place * 2 + block;  // of Q8_0, Q4_0, Q4_1, Q5_0
  const auto f16 = [header](int i) { return __half2float(reinterpret_cast<const __half*>(header)[i]); };
  const auto word = [payload](int i) { return reinterpret_cast<const uint32_t*>(payload)[i]; };
  const auto nibble = [&] { return int(word(at.lane * 4 + at.mma) >> 4 * (at.reg + 4 * at.half) & 15); };
  const int value16 = ((at.mma * 32 + at.lane) * 4 + at.reg) * 2 + at.half;

  switch (w.format) {
    case WeightFormat::kF32:
      break;
    case WeightFormat::kBF16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(payload)[value16]);
    case WeightFormat::kF16:
      return __half2float(reinterpret_cast<const __half*>(payload)[value16]);
    case WeightFormat::kQ8_0: {
      const int byte = ((at.mma / 2 * 32 + at.lane) * 2 + at.mma % 2) * 8 + at.reg * 2 + at.half;
      return f16(scale) * float(payload[byte] - 128);
    }
    case WeightFormat::kQ4_0:
      return f16(scale) * float(nibble() - 8);
    case WeightFormat::kQ4_1:
      return __fadd_rn(__fmul_rn(f16(2 * scale), float(nibble())), f16(2 * scale + 1));
    case WeightFormat::kQ5_0: {
      const int fifth = int(word(128 + at.lane) >> (4 * at.mma + at.reg + 16 * at.half) & 1);
      return f16(scale) * float((nibble() | fifth << 4) - 16);
    }
    case WeightFormat::kQ4_K: {
      const uint8_t* scales = payload + 512 + row_place * 4 + block;
      const float d = f16(2 * row_place) * float(scales[0]), m = f16(2 * row_place + 1) * float(scales[2]);
      return __fsub_rn(__fmul_rn(d, float(nibble())), m);
    }
    case WeightFormat::kQ6_K: {
      const int high = int(word(128 + at.lane * 2 + at.mma / 2) >> (8 * (at.mma % 2) + 2 * at.reg + 16 * at.half) & 3);
      const int sub_scale = payload[768 + row_place * 4 + k % kStepK / 16] - 128;
      return f16(row_place) * float(sub_scale) * float((nibble() | high << 4) - 32);
    }
  }
  return 0;
}

}  // namespace sluice::cuda
