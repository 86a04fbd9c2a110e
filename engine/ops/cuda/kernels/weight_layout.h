// Where each value of a packed weight matrix lies. The unit is the fragment: what one lane of a warp feeds into one
// mma.m16n8k16 as its part of the weights lies in one place, so that a warp reads 32 x 16 contiguous bytes straight
// into the operands, from global or from shared memory, and every byte once.
//
// A matrix is cut into row tiles of 16 rows (the last padded with zeros), a row tile into K tiles of `steps` steps of
// 64 values (the last padded likewise); K tiles of a row tile follow each other:
//   [row tile][K tile] { header: the scales of its blocks; payload of step 0, 1, ... }
// A step is four mma instructions j, of 16 consecutive values of k each. Lane 4 g + q holds, of mma j, the rows g and
// g + 8 and the values k = 16 j + 4 q + {0, 1, 2, 3}: register i (0..3) has row g + 8 (i % 2) and k = 16 j + 4 q +
// 2 (i / 2) + h, h = 0 in the low half and 1 in the high half. That is not the order in which the instruction counts k,
// but it is the same for both operands, so the product is the same.
//
//   format  steps  payload of a step                                            header
//   f32                 (no tiles: [row tile][k][16 rows] floats)
//   bf16 f16    1  [j][lane][i][h] 16-bit                                       -
//   Q8_0        1  [j / 2][lane][j % 2][i][h] bytes q + 128                     [g][row half][block of 32] f16 d
//   Q4_0        1  [lane][j] word: nibble i + 4 h                               as Q8_0
//   Q4_1        1  as Q4_0                                                      [g][row half][block] f16 d, m
//   Q5_0        1  as Q4_0, then [lane] word: bit 4 j + i + 16 h, the fifth     as Q8_0
//   Q4_K        4  as Q4_0, then [g][row half] bytes scale 0, 1, minimum 0, 1   [g][row half] f16 d, dmin
//                  of the blocks of 32
//   Q6_K        4  as Q4_0, then [lane][j / 2] word: bits 8 (j % 2) + 2 i +     [g][row half] f16 d
//                  16 h and the next, the fifth and sixth, then [g][row half]
//                  bytes scale + 128 of the blocks of 16
// Sizes follow from the format's row in engine/base/tensor_format.h. Bytes per weight are those of the file, for Q4_K
// 3 % more. With `gated` a row tile is 8 rows of gate and the same 8
// of up.
#pragma once

#include <cstdint>

#include "engine/base/tensor_format.h"

namespace sluice::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kStepK = 64;

struct TileLayout {
  int steps = 1;          // of a K tile
  int header_bytes = 0;   // multiples of 16
  int payload_bytes = 0;  // of one step
  constexpr int bytes() const { return header_bytes + steps * payload_bytes; }
  constexpr int k() const { return steps * kStepK; }
};

// REQUIRES: HasGpuForm(format), not kF32.
constexpr TileLayout TileLayoutOf(TensorType format) {
  const TensorFormat& row = FormatOf(format);
  const BlockCodes& codes = row.codes;
  if (codes.bits == 0) return {.payload_bytes = kTileRows * kStepK * row.stored.block_bytes};
  const int code_bytes = kTileRows * kStepK * codes.bits / 8;
  const int scale_bytes = kTileRows * (codes.affine ? 4 : 2);  // f16 d, and m or dmin, of a block of each row
  if (!codes.two_level) return {.header_bytes = kStepK / 32 * scale_bytes, .payload_bytes = code_bytes};
  return {.steps = row.stored.block_elems / kStepK,
          .header_bytes = scale_bytes,
          .payload_bytes = code_bytes + kTileRows * 4};
}

constexpr int32_t RowTiles(int32_t n, bool gated) {
  return gated ? (n / 2 + 7) / 8 : n / kTileRows + (n % kTileRows != 0);
}
constexpr int32_t KTiles(const TileLayout& layout, int32_t k) { return k / layout.k() + (k % layout.k() != 0); }

// The row of the unpacked matrix (gate, then up) that row r of a row tile holds; -1: padding.
constexpr int32_t UnpackedRow(int32_t row_tile, int r, int32_t n, bool gated) {
  if (!gated) {
    const int32_t row = row_tile * kTileRows + r;
    return row < n ? row : -1;
  }
  const int32_t row = row_tile * 8 + r % 8;
  return row < n / 2 ? row + (r < 8 ? 0 : n / 2) : -1;
}

// Where the mma instructions of a step want the value in row r (0..15), column kk (0..63).
struct FragmentPlace {
  int mma, lane, reg, half;
};
constexpr FragmentPlace FragmentPlaceOf(int r, int kk) {
  return {.mma = kk / 16, .lane = r % 8 * 4 + kk % 16 / 4, .reg = r / 8 + kk % 4 / 2 * 2, .half = kk % 2};
}

}  // namespace sluice::cuda
