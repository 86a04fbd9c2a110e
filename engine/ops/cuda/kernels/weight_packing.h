// Host side: a weight matrix as a file stores it -> the bytes that the GEMM kernels read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/ops/cuda/kernels/weight_layout.h"
#include "engine/ops/cuda/kernels/weight_matrix.h"

namespace sluice::cuda {

// Bytes of a packed [n, k] matrix. n may be anything; k a multiple of 8 (kF32: anything), of the block's length (32, or
// 256 for the K formats) where the format has blocks.
int64_t PackedBytes(TensorType format, int32_t n, int32_t k, bool gated);

// Of a row tile (weight_layout.h): a packed matrix is RowTiles of them, one after the other.
int64_t RowTileBytes(TensorType format, int32_t k);

// Packs the stored rows of one row tile, of k values each; null: padding. Writes RowTileBytes bytes.
void PackRowTile(TensorType format, int32_t k, std::span<const uint8_t* const, kTileRows> rows, std::byte* packed);

// Packs a whole matrix: rows that come in the file's own form of the format (f32, bf16, f16: row-major values;
// quantised: the blocks of GGUF, row by row). `parts` are the bytes of one or more matrices stacked one below the
// other, each a whole number of rows; with `gated` exactly two of equal shape, gate and up. Writes PackedBytes bytes,
// the padding included.
void PackWeights(TensorType format, int32_t n, int32_t k, bool gated, std::span<const std::span<const uint8_t>> parts,
                 std::span<std::byte> packed);

}  // namespace sluice::cuda
