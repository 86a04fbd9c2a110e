// A matrix of a role (tensor_roles.h) inside a tensor of a file, in whatever form it lies there (tensor_form.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/tensor_view.h"
#include "engine/model/tensor_form.h"

namespace sluice {

// How many rows and columns of a stored F8_E4M3 matrix share a factor; blocks at the edges may be smaller.
struct Fp8BlockSize {
  int32_t rows = 128;
  int32_t cols = 128;

  // Factors of a matrix in either direction.
  int64_t factor_rows(int64_t matrix_rows) const { return (matrix_rows + rows - 1) / rows; }
  int64_t factor_cols(int64_t matrix_cols) const { return (matrix_cols + cols - 1) / cols; }
};

// Of the form TensorEncoding::kMxfp4Blocks.
inline constexpr int64_t kMxfp4BlockElems = 32, kMxfp4BlockBytes = 16;

// Points into the file's tensors, which outlive it. A tensor holds matrices of `slab_rows` rows one after the other;
// the role's has rows first_row, first_row + row_step, ... of the `slab`-th. Rows and columns are those of the role: a
// slab whose form is transposed is stored as [cols, slab_rows]. A vector is a matrix of one column.
struct StoredMatrix {
  const TensorView* tensor = nullptr;
  const TensorView* companion = nullptr;  // factors of an F8_E4M3 tensor, scales of MXFP4 blocks
  Fp8BlockSize fp8_block;
  bool transposed = false;
  TensorEncoding encoding = TensorEncoding::kOfType;

  int64_t slab = 0;
  int64_t slab_rows = 0;
  int64_t first_row = 0;
  int64_t row_step = 1;
  int64_t rows = 0;
  int64_t cols = 0;
};

// A view [rows, cols] of bytes in the file, or of bytes of its own.
struct ReadTensor {
  TensorView view;
  std::unique_ptr<uint8_t[]> bytes;  // null: in the file
};

// In place where the rows lie as they should. Otherwise a copy: in the tensor's type where elements or whole rows only
// change places, MXFP4 for MXFP4 blocks, and F32 for what has factors or is transposed within blocks; every value is
// exactly the one that the file means. INVALID_ARGUMENT, naming the tensor: an MXFP4 scale of 255, which is no number.
// REQUIRES: CanDequantize(tensor type) unless MXFP4 blocks; sizes are those of the tensors.
absl::StatusOr<ReadTensor> ReadMatrix(const StoredMatrix& matrix);

// Writes the `rows` values of a vector. REQUIRES: cols == 1, a type of one element per block.
void ReadVector(const StoredMatrix& vector, float* out);

}  // namespace sluice
