#include "engine/model/stored_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/quote.h"

namespace sluice {
namespace {

constexpr uint8_t kMxfp4NoNumber = 255;

int64_t StoredRows(const StoredMatrix& m) { return m.transposed ? m.cols : m.slab_rows; }
int64_t StoredCols(const StoredMatrix& m) { return m.transposed ? m.slab_rows : m.cols; }

const uint8_t* StoredRow(const StoredMatrix& m, int64_t row) {
  return m.tensor->data.data() + (m.slab * StoredRows(m) + row) * TensorBytes(m.tensor->type, StoredCols(m));
}

// The values of one row as it is stored.
void DecodeStoredRow(const StoredMatrix& m, int64_t row, float* out) {
  const int64_t cols = StoredCols(m);
  DequantizeRow(m.tensor->type, StoredRow(m, row), cols, out);
  if (m.companion == nullptr) return;
  const TensorView& factors = *m.companion;
  const int64_t factor_rows = m.fp8_block.factor_rows(StoredRows(m));
  const int64_t factor_cols = m.fp8_block.factor_cols(cols);
  const int64_t first = (m.slab * factor_rows + row / m.fp8_block.rows) * factor_cols;
  const int64_t bytes = TensorBytes(factors.type, 1);
  for (int64_t b = 0; b < factor_cols; ++b) {
    float factor;
    DequantizeRow(factors.type, factors.data.data() + (first + b) * bytes, 1, &factor);
    const int64_t end = std::min(cols, (b + 1) * m.fp8_block.cols);
    for (int64_t c = b * m.fp8_block.cols; c < end; ++c) out[c] *= factor;
  }
}

ReadTensor NewTensor(const StoredMatrix& m, TensorType type) {
  const size_t bytes = size_t(m.rows * TensorBytes(type, m.cols));
  ReadTensor result;
  result.bytes = std::make_unique_for_overwrite<uint8_t[]>(bytes);
  result.view = {m.tensor->name, type, {m.rows, m.cols}, {result.bytes.get(), bytes}};
  return result;
}

ReadTensor InPlace(const StoredMatrix& m) {
  const size_t bytes = size_t(m.rows * TensorBytes(m.tensor->type, m.cols));
  return {{m.tensor->name, m.tensor->type, {m.rows, m.cols}, {StoredRow(m, m.first_row), bytes}}, nullptr};
}

ReadTensor GatherRows(const StoredMatrix& m) {
  ReadTensor result = NewTensor(m, m.tensor->type);
  const size_t bytes = size_t(TensorBytes(m.tensor->type, m.cols));
  for (int64_t i = 0; i < m.rows; ++i) {
    std::memcpy(&result.bytes[size_t(i) * bytes], StoredRow(m, m.first_row + i * m.row_step), bytes);
  }
  return result;
}

ReadTensor DecodeRows(const StoredMatrix& m) {
  ReadTensor result = NewTensor(m, TensorType::kF32);
  float* out = reinterpret_cast<float*>(result.bytes.get());
  for (int64_t i = 0; i < m.rows; ++i) DecodeStoredRow(m, m.first_row + i * m.row_step, out + i * m.cols);
  return result;
}

// Elements of `kSize` bytes.
template <int kSize>
ReadTensor Transpose(const StoredMatrix& m) {
  ReadTensor result = NewTensor(m, m.tensor->type);
  constexpr int64_t kTile = 64;  // so that both sides of a tile stay in the cache
  for (int64_t c0 = 0; c0 < m.cols; c0 += kTile) {
    for (int64_t i0 = 0; i0 < m.rows; i0 += kTile) {
      for (int64_t c = c0; c < std::min(m.cols, c0 + kTile); ++c) {
        const uint8_t* row = StoredRow(m, c);
        for (int64_t i = i0; i < std::min(m.rows, i0 + kTile); ++i) {
          std::memcpy(&result.bytes[size_t(i * m.cols + c) * kSize], row + (m.first_row + i * m.row_step) * kSize,
                      kSize);
        }
      }
    }
  }
  return result;
}

ReadTensor DecodeTransposed(const StoredMatrix& m) {
  ReadTensor result = NewTensor(m, TensorType::kF32);
  float* out = reinterpret_cast<float*>(result.bytes.get());
  std::vector<float> row(static_cast<size_t>(m.slab_rows));
  for (int64_t c = 0; c < m.cols; ++c) {
    DecodeStoredRow(m, c, row.data());
    for (int64_t i = 0; i < m.rows; ++i) out[i * m.cols + c] = row[size_t(m.first_row + i * m.row_step)];
  }
  return result;
}

// GGUF's block is the scale followed by 16 bytes, of which byte j holds element j low and element j + 16 high. Both
// formats count scales alike: GGUF's 2^(e - 128) multiplies twice the 4-bit number.
absl::StatusOr<ReadTensor> RepackMxfp4(const StoredMatrix& m) {
  ReadTensor result = NewTensor(m, TensorType::kMXFP4);
  const int64_t blocks_per_row = m.cols / kMxfp4BlockElems;
  uint8_t* out = result.bytes.get();
  for (int64_t i = 0; i < m.rows; ++i) {
    const int64_t first = (m.slab * m.slab_rows + m.first_row + i * m.row_step) * blocks_per_row;
    for (int64_t b = first; b < first + blocks_per_row; ++b) {
      const uint8_t scale = m.companion->data[size_t(b)];
      if (scale == kMxfp4NoNumber) {
        return absl::InvalidArgumentError(absl::StrCat("tensor ", Quote(m.companion->name), " holds ", scale, " at ", b,
                                                       ", which is not a number; expected scales of at most 254"));
      }
      const uint8_t* in = m.tensor->data.data() + b * 16;
      *out++ = scale;
      for (int j = 0; j < 16; ++j) {
        const int shift = 4 * (j & 1);
        *out++ = uint8_t((in[j / 2] >> shift & 15) | (in[8 + j / 2] >> shift & 15) << 4);
      }
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<ReadTensor> ReadMatrix(const StoredMatrix& m) {
  if (m.encoding == TensorEncoding::kMxfp4Blocks) return RepackMxfp4(m);
  const TensorTypeInfo& info = GetTensorTypeInfo(m.tensor->type);
  if (!m.transposed) {
    if (m.companion != nullptr) return DecodeRows(m);
    return m.row_step == 1 ? InPlace(m) : GatherRows(m);
  }
  if (m.companion == nullptr && info.block_elems == 1) {
    switch (info.block_bytes) {
      case 1:
        return Transpose<1>(m);
      case 2:
        return Transpose<2>(m);
      case 4:
        return Transpose<4>(m);
    }
  }
  return DecodeTransposed(m);
}

void ReadVector(const StoredMatrix& m, float* out) {
  SLUICE_CHECK(m.cols == 1 && !m.transposed);
  for (int64_t i = 0; i < m.rows; ++i) DecodeStoredRow(m, m.first_row + i * m.row_step, out + i);
}

}  // namespace sluice
