// Single values of packed weight matrices, for kernels that read a row here and there.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/weight_matrix.h"
#include "engine/ops/cuda/kernels/weight_tiles.cuh"

namespace sluice::cuda {

// Neighbouring values lie in the same words: their threads find them in L1.
struct CachedMemory : GlobalMemory {
  static __device__ __forceinline__ uint4 Stream(const std::byte* at) { return Load<uint4>(at); }
};

// Register `reg` of the operand of `mma`, neither of them known when nvcc compiles.
template <class F, int j = 0>
__device__ __forceinline__ uint32_t OperandRegister(const typename F::Payload& payload, int mma, int reg) {
  if constexpr (j < 3) {
    if (mma != j) return OperandRegister<F, j + 1>(payload, mma, reg);
  }
  uint32_t operand[4];
  F::template Operand<j>(payload, operand);
  return reg < 2 ? (reg == 0 ? operand[0] : operand[1]) : (reg == 2 ? operand[2] : operand[3]);
}

// f32 has no tiles.
struct F32Weights {
  static constexpr TensorType kFormat = TensorType::kF32;
};

// Row `row`, column `column` of a matrix of F's format that is not gated. f32, as engine/base/dequantize.h gives it.
template <class F>
__device__ __forceinline__ float WeightElement(const WeightMatrix& w, int32_t row, int32_t column) {
  const int r = row % kTileRows;
  if constexpr (F::kFormat == TensorType::kF32) {
    return static_cast<const float*>(w.data)[(row / kTileRows * int64_t{w.k} + column) * kTileRows + r];
  } else {
    constexpr TileLayout layout = TileLayoutOf(F::kFormat);
    const int k = column % layout.k();
    const int64_t tile = row / kTileRows * int64_t{KTiles(layout, w.k)} + column / layout.k();
    const std::byte* header_at = static_cast<const std::byte*>(w.data) + tile * layout.bytes();
    const std::byte* payload_at = header_at + layout.header_bytes + k / kStepK * layout.payload_bytes;
    const FragmentPlace at = FragmentPlaceOf(r, k % kStepK);
    const auto header = F::template LoadHeader<CachedMemory>(header_at, at.lane);
    const auto payload = F::template LoadPayload<CachedMemory>(payload_at, at.lane);
    const RowScales scales = StoredScales<F>(header, payload, k % kStepK / F::kBlock);
    const uint32_t operand = OperandRegister<F>(payload, at.mma, at.reg);
    return r < 8 ? StoredWeight<F>(operand, at.half, scales.low, scales.low_min)
                 : StoredWeight<F>(operand, at.half, scales.high, scales.high_min);
  }
}

}  // namespace sluice::cuda
