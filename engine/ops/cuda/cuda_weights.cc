#include "engine/ops/cuda/cuda_weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/float16.h"
#include "engine/base/tensor_format.h"
#include "engine/ops/cuda/kernels/weight_packing.h"
#include "engine/ops/validate.h"

namespace sluice {
namespace {

// 16-byte loads of bf16 rows.
constexpr int64_t kInFeaturesMultiple = 8;

int64_t RowsOf(const TensorView& part) { return part.shape[0]; }

absl::Status CheckInFeatures(const TensorView& part) {
  const int64_t in = part.shape.back();
  if (in % kInFeaturesMultiple == 0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "tensor ", part.name, " has ", in, " input features; on a GPU they must be a multiple of ", kInFeaturesMultiple));
}

int64_t PlainBytes(TensorType format) { return format == TensorType::kF32 ? 4 : 2; }

void StorePlain(std::span<const float> values, TensorType format, uint8_t* to) {
  if (format == TensorType::kF32) {
    std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  for (const float value : values) {
    const uint16_t bits = FloatToBf16(value);
    std::memcpy(to, &bits, 2);
    to += 2;
  }
}

// Packs row tiles of the matrix that parts, one below the other, make. Rows of another type are converted on the way.
class TilePacker {
 public:
  // REQUIRES: rows of all parts together are matrix.n.
  TilePacker(std::span<const TensorView> parts, const cuda::WeightMatrix& matrix, int32_t num_workers)
      : matrix_(matrix), row_bytes_(matrix.k * PlainBytes(matrix.format)), workers_(static_cast<size_t>(num_workers)) {
    for (const TensorView& part : parts) {
      for (int64_t row = 0; row < RowsOf(part); ++row) {
        rows_.push_back({part.type, part.data.data() + row * TensorBytes(part.type, matrix.k)});
      }
    }
    SLUICE_CHECK(static_cast<int64_t>(rows_.size()) == matrix.n);
  }

  void Pack(int64_t row_tile, int worker, std::byte* out) {
    Worker& memory = workers_[static_cast<size_t>(worker)];
    std::array<const uint8_t*, cuda::kTileRows> rows;
    for (int r = 0; r < cuda::kTileRows; ++r) {
      const int32_t row = cuda::UnpackedRow(static_cast<int32_t>(row_tile), r, matrix_.n, matrix_.gated);
      rows[static_cast<size_t>(r)] = row >= 0 ? Stored(rows_[static_cast<size_t>(row)], r, &memory) : nullptr;
    }
    cuda::PackRowTile(matrix_.format, matrix_.k, rows, out);
  }

 private:
  struct Row {
    TensorType type;
    const uint8_t* data;
  };
  struct Worker {
    std::vector<uint8_t> rows;  // [kTileRows, row_bytes_]
    std::vector<float> values;
  };

  const uint8_t* Stored(const Row& row, int r, Worker* memory) const {
    if (row.type == matrix_.format) return row.data;
    memory->rows.resize(static_cast<size_t>(cuda::kTileRows * row_bytes_));
    memory->values.resize(static_cast<size_t>(matrix_.k));
    uint8_t* to = memory->rows.data() + r * row_bytes_;
    DequantizeRow(row.type, row.data, matrix_.k, memory->values.data());
    StorePlain(memory->values, matrix_.format, to);
    return to;
  }

  const cuda::WeightMatrix matrix_;
  const int64_t row_bytes_;
  std::vector<Row> rows_;
  std::vector<Worker> workers_;
};

}  // namespace

int64_t CudaLinear::resident_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.data.bytes();
  return bytes;
}

TensorType WeightLoader::FormatFor(TensorType type, bool precise) const {
  if (activations_ == cuda::Element::kF32 || precise) return TensorType::kF32;
  const TensorType format = FormatOf(type).on_gpu;
  return format == TensorType::kF32 ? TensorType::kBF16 : format;  // f32 meets f32 activations only
}

int64_t WeightLoader::LeastBytes(const TensorView& tensor) const {
  if (!CanDequantize(tensor.type)) return 0;
  const TensorType format = FormatFor(tensor.type, false);
  if (tensor.type == format) return static_cast<int64_t>(tensor.data.size());
  return tensor.num_elements() * (format == TensorType::kF32 ? 4 : 2);
}

TensorType WeightLoader::CommonFormat(std::span<const TensorView> parts, bool precise) const {
  const TensorType format = FormatFor(parts[0].type, precise);
  for (const TensorView& part : parts) {
    if (FormatFor(part.type, precise) != format) return TensorType::kBF16;
  }
  return format;
}

absl::Status WeightLoader::Pack(std::span<const TensorView> parts, const cuda::WeightMatrix& matrix, std::byte* to) {
  int64_t stored = 0;
  bool widened = false;
  for (const TensorView& part : parts) {
    stored += static_cast<int64_t>(part.data.size());
    widened |= part.type != matrix.format;
  }
  const int64_t bytes = cuda::PackedBytes(matrix.format, matrix.n, matrix.k, matrix.gated);
  if (widened) widened_bytes_ += std::max<int64_t>(0, bytes - stored);
  TilePacker packer(parts, matrix, upload_.num_threads());
  return upload_.Send(to, cuda::RowTiles(matrix.n, matrix.gated), cuda::RowTileBytes(matrix.format, matrix.k),
                      [&](int64_t tile, int worker, std::byte* out) { packer.Pack(tile, worker, out); });
}

absl::StatusOr<CudaLinear::Piece> WeightLoader::Piece(std::span<const TensorView> parts, TensorType format,
                                                      bool gated) {
  CudaLinear::Piece piece;
  piece.matrix.format = format;
  piece.matrix.k = static_cast<int32_t>(parts[0].shape.back());
  piece.matrix.gated = gated;
  for (const TensorView& part : parts) piece.matrix.n += static_cast<int32_t>(RowsOf(part));
  const int64_t bytes = cuda::PackedBytes(format, piece.matrix.n, piece.matrix.k, gated);
  SLUICE_ASSIGN_OR_RETURN(piece.data, DeviceBuffer::Create(device_, bytes));
  piece.matrix.data = piece.data.data();
  SLUICE_RETURN_IF_ERROR(Pack(parts, piece.matrix, piece.data.as<std::byte>()));
  return piece;
}

absl::StatusOr<std::unique_ptr<CudaLinear>> WeightLoader::Linear(std::span<const TensorView> parts,
                                                                 LinearLayout layout) {
  SLUICE_RETURN_IF_ERROR(ValidateLinearParts(parts, layout));
  SLUICE_RETURN_IF_ERROR(CheckInFeatures(parts[0]));
  auto linear = std::make_unique<CudaLinear>();
  linear->in_ = parts[0].shape.back();
  const bool gated = layout == LinearLayout::kGateUp, precise = layout == LinearLayout::kRouter;
  for (size_t first = 0; first < parts.size();) {
    // Gate and up are one matrix whatever they are stored as.
    size_t end = gated ? parts.size() : first + 1;
    TensorType format = CommonFormat(parts.subspan(first, end - first), precise);
    while (end < parts.size() && FormatFor(parts[end].type, precise) == format) ++end;
    SLUICE_ASSIGN_OR_RETURN(CudaLinear::Piece piece, Piece(parts.subspan(first, end - first), format, gated));
    piece.first_row = static_cast<int32_t>(linear->out_);
    linear->out_ += piece.matrix.n;
    linear->pieces_.push_back(std::move(piece));
    first = end;
  }
  return linear;
}

absl::StatusOr<std::unique_ptr<CudaExperts>> WeightLoader::Experts(std::span<const std::vector<TensorView>> experts,
                                                                   LinearLayout layout) {
  SLUICE_RETURN_IF_ERROR(ValidateExperts(experts, layout));
  SLUICE_RETURN_IF_ERROR(CheckInFeatures(experts[0][0]));
  auto loaded = std::make_unique<CudaExperts>();
  cuda::WeightMatrix& matrix = loaded->first_;
  matrix.format = CommonFormat(experts[0], false);
  matrix.gated = layout == LinearLayout::kGateUp;
  matrix.k = static_cast<int32_t>(experts[0][0].shape.back());
  for (const TensorView& part : experts[0]) matrix.n += static_cast<int32_t>(RowsOf(part));
  loaded->num_experts_ = static_cast<int32_t>(experts.size());
  loaded->expert_bytes_ = (cuda::PackedBytes(matrix.format, matrix.n, matrix.k, matrix.gated) + 255) / 256 * 256;
  SLUICE_ASSIGN_OR_RETURN(loaded->data_, DeviceBuffer::Create(device_, loaded->num_experts_ * loaded->expert_bytes_));
  matrix.data = loaded->data_.data();
  for (size_t e = 0; e < experts.size(); ++e) {
    std::byte* to = loaded->data_.as<std::byte>() + static_cast<int64_t>(e) * loaded->expert_bytes_;
    SLUICE_RETURN_IF_ERROR(Pack(experts[e], matrix, to));
  }
  return loaded;
}

absl::StatusOr<CudaMlaUp::Half> WeightLoader::Heads(const TensorView& view, int32_t num_heads, int32_t n, int32_t k,
                                                    bool transposed) {
  CudaMlaUp::Half half;
  half.first.format = activations_ == cuda::Element::kF32 ? TensorType::kF32 : TensorType::kBF16;
  half.first.n = n;
  half.first.k = k;
  const int64_t bytes = cuda::PackedBytes(half.first.format, n, k, false);
  half.head_bytes = (bytes + 255) / 256 * 256;
  SLUICE_ASSIGN_OR_RETURN(half.data, DeviceBuffer::Create(device_, num_heads * half.head_bytes));
  half.first.data = half.data.data();
  const int64_t count = int64_t{n} * k, stored_bytes = TensorBytes(view.type, count);
  const auto pack = [&](int64_t head, int, std::byte* out) {
    std::vector<float> values(static_cast<size_t>(count)), swapped;
    DequantizeRow(view.type, view.data.data() + head * stored_bytes, count, values.data());
    if (transposed) {
      swapped.resize(values.size());
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < n; ++j) swapped[j * k + i] = values[i * n + j];
      }
      values.swap(swapped);
    }
    std::vector<uint8_t> plain(static_cast<size_t>(count * PlainBytes(half.first.format)));
    StorePlain(values, half.first.format, plain.data());
    const std::span<const uint8_t> part(plain);
    cuda::PackWeights(half.first.format, n, k, false, std::span(&part, 1), std::span(out, static_cast<size_t>(bytes)));
    std::memset(out + bytes, 0, static_cast<size_t>(half.head_bytes - bytes));
  };
  SLUICE_RETURN_IF_ERROR(upload_.Send(half.data.as<std::byte>(), num_heads, half.head_bytes, pack));
  return half;
}

absl::StatusOr<std::unique_ptr<CudaMlaUp>> WeightLoader::MlaUp(const TensorView& key_up, const TensorView& value_up,
                                                               const Mla& heads) {
  SLUICE_RETURN_IF_ERROR(ValidateMlaUp(key_up, value_up, heads));
  if (heads.qk_nope_head_dim % 8 != 0 || heads.kv_lora_rank % 8 != 0 || heads.qk_rope_head_dim % 8 != 0 ||
      heads.v_head_dim % 8 != 0) {
    return absl::UnimplementedError(absl::StrCat("tensor ", key_up.name, ": heads of ", heads.qk_nope_head_dim, " + ",
                                                 heads.qk_rope_head_dim, " and ", heads.v_head_dim, " over latents of ",
                                                 heads.kv_lora_rank, "; on a GPU all must be multiples of 8"));
  }
  auto up = std::make_unique<CudaMlaUp>();
  SLUICE_ASSIGN_OR_RETURN(up->key_,
                          Heads(key_up, heads.num_heads, heads.qk_nope_head_dim, heads.kv_lora_rank, /*transposed=*/false));
  SLUICE_ASSIGN_OR_RETURN(up->transposed_key_,
                          Heads(key_up, heads.num_heads, heads.kv_lora_rank, heads.qk_nope_head_dim, /*transposed=*/true));
  SLUICE_ASSIGN_OR_RETURN(up->value_,
                          Heads(value_up, heads.num_heads, heads.v_head_dim, heads.kv_lora_rank, /*transposed=*/false));
  return up;
}

absl::StatusOr<std::unique_ptr<CudaVector>> WeightLoader::Vector(std::span<const float> values) {
  SLUICE_ASSIGN_OR_RETURN(DeviceBuffer data, DeviceBuffer::Copy(device_, values));
  return std::make_unique<CudaVector>(std::move(data), static_cast<int64_t>(values.size()));
}

absl::StatusOr<std::unique_ptr<CudaRope>> WeightLoader::Rope(const RopeTable& table) {
  cuda::RopeView view;
  view.attention_factor = table.attention_factor;
  SLUICE_ASSIGN_OR_RETURN(DeviceBuffer inv_freq, DeviceBuffer::Copy<float>(device_, table.inv_freq));
  view.inv_freq = inv_freq.as<float>();
  DeviceBuffer long_inv_freq;
  if (const auto* rule = std::get_if<LongRopeRule>(&table.length_rule)) {
    SLUICE_ASSIGN_OR_RETURN(long_inv_freq, DeviceBuffer::Copy<float>(device_, rule->long_inv_freq));
    view.long_inv_freq = long_inv_freq.as<float>();
    view.rule = cuda::LengthRule::kLongRope;
    view.original_max_position = rule->original_max_position;
  } else if (const auto* dynamic = std::get_if<DynamicNtkRule>(&table.length_rule)) {
    view.rule = cuda::LengthRule::kDynamicNtk;
    view.original_max_position = dynamic->max_position;
    view.base = dynamic->base;
    view.factor = dynamic->factor;
  }
  return std::make_unique<CudaRope>(std::move(inv_freq), std::move(long_inv_freq), view);
}

}  // namespace sluice
