// Tensor-core instructions: ldmatrix and mma.sync with the register layouts of the PTX manual ("Warp-level matrix
// instructions"). The last lane to arrive works on the whole tile.
#pragma once

#include <cstdint>

#include "tests/cuda_on_cpu/fail.h"
#include "tests/cuda_on_cpu/shared_memory.h"
#include "tests/cuda_on_cpu/thread.h"

namespace sluice::cuda_on_cpu {

// `row`: 8 elements.
template <int num, bool transpose>
void MeetToLoadMatrices(uint32_t (&matrices)[num], const void* row, const SourceLine& where);

// Loads `num` (only 4 is needed) 8 x 8 matrices of 16-bit elements. Lane 8 i + r brings the address of row r of matrix
// i, in shared memory and aligned to 16 bytes; lane l gets elements 2 (l % 4) and the next of row l / 4 of each matrix,
// or, if `transpose`, of that column. The addresses of lanes from 8 num are not used.
//
// Each lane reads its own row before it meets the others: what another lane of the warp wrote it sees only after a
// __syncwarp, as on the device, and ThreadSanitizer knows who read.
template <int num, bool transpose>
void LoadMatrices(uint32_t (&matrices)[num], const void* row, const SourceLine& where) {
  struct alignas(16) Row {
    uint64_t halves[2];
  } copy = {};
  if (current->lane < 8u * num) {
    Require(reinterpret_cast<uintptr_t>(row) % 16 == 0, "a row of ldmatrix is not aligned to 16 bytes", where);
    RequireShared(row, sizeof(Row), where);
    copy = *static_cast<const Row*>(row);
  }
  MeetToLoadMatrices<num, transpose>(matrices, &copy, where);
}

enum class MatrixElement { kBf16, kF16 };

// d[16, 8] += a[16, 16] b[16, 8] in f32. With g = lane / 4 and q = lane % 4, and two neighbouring k in a register:
//   a: rows g, g + 8, g, g + 8 at k = 2 q, 2 q, 2 q + 8, 2 q + 8    b: column g at k = 2 q, 2 q + 8
//   d: (g, 2 q), (g, 2 q + 1), (g + 8, 2 q), (g + 8, 2 q + 1)
// Sums d first, then k ascending; the order of a GPU is not told, so last bits differ.
template <MatrixElement element>
void MultiplyMatrices(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const SourceLine& where);

}  // namespace sluice::cuda_on_cpu
