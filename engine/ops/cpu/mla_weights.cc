#include "engine/ops/cpu/mla_weights.h"

#include <cstring>

#include "engine/base/dequantize.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/packed_codec.h"
#include "engine/ops/validate.h"

namespace sluice {
namespace {

// Matrix `head` of a [num_heads, rows, cols] tensor.
TensorView HeadOf(const TensorView& tensor, int64_t head) {
  const size_t bytes = tensor.data.size() / static_cast<size_t>(tensor.shape[0]);
  return {tensor.name,
          tensor.type,
          {tensor.shape[1], tensor.shape[2]},
          tensor.data.subspan(static_cast<size_t>(head) * bytes, bytes)};
}

// The transposed matrix as plain floats of the narrowest type that loses nothing; `bytes` holds them.
TensorView Transpose(const TensorView& matrix, std::vector<uint8_t>* bytes) {
  const int64_t rows = matrix.shape[0], cols = matrix.shape[1];
  std::vector<float> values(static_cast<size_t>(rows * cols));
  DequantizeRow(matrix.type, matrix.data.data(), rows * cols, values.data());
  TensorView transposed{matrix.name, TensorType::kF32, {cols, rows}, {}};
  const TensorType packed = *PackedTypeFor(matrix.type);
  if (!GetPackedFormat(packed).quantized()) transposed.type = packed;
  const size_t width = transposed.type == TensorType::kF32 ? 4 : 2;
  bytes->resize(values.size() * width);
  uint8_t* to = bytes->data();
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r, to += width) {
      const float value = values[static_cast<size_t>(r * cols + c)];
      const uint16_t narrow = transposed.type == TensorType::kF16 ? FloatToF16(value) : FloatToBf16(value);
      width == 4 ? std::memcpy(to, &value, 4) : std::memcpy(to, &narrow, 2);
    }
  }
  transposed.data = absl::MakeConstSpan(*bytes);
  return transposed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuMlaUp>> CpuMlaUp::Load(const TensorView& key_up, const TensorView& value_up,
                                                         const Mla& heads, ThreadPool* pool,
                                                         HugePageArena* arena) {
  SLUICE_RETURN_IF_ERROR(ValidateMlaUp(key_up, value_up, heads));
  auto up = std::make_unique<CpuMlaUp>();
  const auto pack = [&](const TensorView& matrix, std::vector<PackedLinear>* to) {
    absl::StatusOr<PackedLinear> packed =
        PackedLinear::Pack(std::span(&matrix, 1), LinearLayout::kStacked, pool, arena);
    if (packed.ok()) to->push_back(*std::move(packed));
    return packed.status();
  };
  std::vector<uint8_t> bytes;
  for (int head = 0; head < heads.num_heads; ++head) {
    SLUICE_RETURN_IF_ERROR(pack(Transpose(HeadOf(key_up, head), &bytes), &up->absorb_));
  }
  for (int head = 0; head < heads.num_heads; ++head) {
    SLUICE_RETURN_IF_ERROR(pack(HeadOf(value_up, head), &up->value_));
  }
  for (int head = 0; head < heads.num_heads; ++head) {
    SLUICE_RETURN_IF_ERROR(pack(HeadOf(key_up, head), &up->key_));
  }
  return up;
}

int64_t CpuMlaUp::resident_bytes() const {
  int64_t bytes = 0;
  for (const std::vector<PackedLinear>* matrices : {&key_, &value_, &absorb_}) {
    for (const PackedLinear& matrix : *matrices) bytes += matrix.bytes();
  }
  return bytes;
}

}  // namespace sluice
