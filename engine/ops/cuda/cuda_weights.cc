#include "engine/ops/cuda/cuda_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/dequantize.h"
#include "engine/base/float16.h"
#include "engine/ops/cuda/kernels/weight_packing.h"
#include "engine/ops/validate.h"

namespace sluice {
namespace {

using cuda::WeightFormat;

// 16-byte loads of bf16 rows.
constexpr int64_t kInFeaturesMultiple = 8;

int64_t RowsOf(const TensorView& part) { return part.shape[0]; }

absl::Status CheckInFeatures(const TensorView& part) {
  const int64_t in = part.shape.back();
  if (in % kInFeaturesMultiple == 0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "tensor ", part.name, " has ", in, " input features; on a GPU they must be a multiple of ", kInFeaturesMultiple));
}

// The format whose kernels read the type as it is stored.
std::optional<WeightFormat> StoredFormat(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return WeightFormat::kF32;
    case TensorType::kBF16:
      return WeightFormat::kBF16;
    case TensorType::kF16:
      return WeightFormat::kF16;
    case TensorType::kQ8_0:
      return WeightFormat::kQ8_0;
    case TensorType::kQ4_0:
      return WeightFormat::kQ4_0;
    case TensorType::kQ4_1:
      return WeightFormat::kQ4_1;
    case TensorType::kQ5_0:
      return WeightFormat::kQ5_0;
    case TensorType::kQ4_K:
      return WeightFormat::kQ4_K;
    case TensorType::kQ6_K:
      return WeightFormat::kQ6_K;
    default:
      return std::nullopt;
  }
}

// The values of `part` as f32 or bf16.
std::vector<uint8_t> Converted(const TensorView& part, WeightFormat format) {
  const int64_t cols = part.shape.back(), rows = part.num_elements() / cols;
  const int64_t row_bytes = TensorBytes(part.type, cols);
  const int64_t width = format == WeightFormat::kF32 ? 4 : 2;
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * cols * width));
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    DequantizeRow(part.type, part.data.data() + r * row_bytes, cols, row.data());
    uint8_t* to = bytes.data() + r * cols * width;
    if (format == WeightFormat::kF32) {
      std::memcpy(to, row.data(), static_cast<size_t>(cols) * 4);
      continue;
    }
    for (int64_t c = 0; c < cols; ++c) {
      const uint16_t bits = FloatToBf16(row[static_cast<size_t>(c)]);
      std::memcpy(to + c * 2, &bits, 2);
    }
  }
  return bytes;
}

}  // namespace

int64_t CudaLinear::resident_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.data.bytes();
  return bytes;
}

WeightFormat WeightLoader::FormatOf(TensorType type, bool precise) const {
  if (activations_ == cuda::Element::kF32 || precise) return WeightFormat::kF32;
  const WeightFormat format = StoredFormat(type).value_or(WeightFormat::kBF16);
  return format == WeightFormat::kF32 ? WeightFormat::kBF16 : format;  // f32 meets f32 activations only
}

int64_t WeightLoader::LeastBytes(const TensorView& tensor) const {
  if (!CanDequantize(tensor.type)) return 0;
  const WeightFormat format = FormatOf(tensor.type, false);
  if (StoredFormat(tensor.type) == format) return static_cast<int64_t>(tensor.data.size());
  return tensor.num_elements() * (format == WeightFormat::kF32 ? 4 : 2);
}

WeightFormat WeightLoader::CommonFormat(std::span<const TensorView> parts, bool precise) const {
  const WeightFormat format = FormatOf(parts[0].type, precise);
  for (const TensorView& part : parts) {
    if (FormatOf(part.type, precise) != format) return WeightFormat::kBF16;
  }
  return format;
}

void WeightLoader::Pack(std::span<const TensorView> parts, WeightFormat format, const cuda::WeightMatrix& matrix,
                        std::span<std::byte> to) {
  std::vector<std::vector<uint8_t>> converted;
  std::vector<std::span<const uint8_t>> bytes;
  int64_t stored = 0;
  bool widened = false;
  for (const TensorView& part : parts) {
    stored += static_cast<int64_t>(part.data.size());
    if (StoredFormat(part.type) == format) {
      bytes.emplace_back(part.data.data(), part.data.size());
      continue;
    }
    widened = true;
    converted.push_back(Converted(part, format));
    bytes.emplace_back(converted.back().data(), converted.back().size());
  }
  cuda::PackWeights(format, matrix.n, matrix.k, matrix.gated, bytes, to);
  if (widened) widened_bytes_ += std::max<int64_t>(0, static_cast<int64_t>(to.size()) - stored);
}

absl::StatusOr<CudaLinear::Piece> WeightLoader::Piece(std::span<const TensorView> parts, WeightFormat format,
                                                      bool gated) {
  CudaLinear::Piece piece;
  piece.matrix.format = format;
  piece.matrix.k = static_cast<int32_t>(parts[0].shape.back());
  piece.matrix.gated = gated;
  for (const TensorView& part : parts) piece.matrix.n += static_cast<int32_t>(RowsOf(part));
  std::vector<std::byte> packed(static_cast<size_t>(cuda::PackedBytes(format, piece.matrix.n, piece.matrix.k, gated)));
  Pack(parts, format, piece.matrix, packed);
  SLUICE_ASSIGN_OR_RETURN(piece.data, DeviceBuffer::Copy<std::byte>(device_, packed));
  piece.matrix.data = piece.data.data();
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
    WeightFormat format = CommonFormat(parts.subspan(first, end - first), precise);
    while (end < parts.size() && FormatOf(parts[end].type, precise) == format) ++end;
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
  std::vector<std::byte> packed(static_cast<size_t>(loaded->expert_bytes_));
  for (size_t e = 0; e < experts.size(); ++e) {
    const auto bytes = static_cast<size_t>(cuda::PackedBytes(matrix.format, matrix.n, matrix.k, matrix.gated));
    Pack(experts[e], matrix.format, matrix, std::span(packed).first(bytes));
    device_->Upload(loaded->data_.as<std::byte>() + static_cast<int64_t>(e) * loaded->expert_bytes_, packed.data(),
                    loaded->expert_bytes_);
    SLUICE_RETURN_IF_ERROR(device_->Synchronize());
  }
  return loaded;
}

absl::StatusOr<CudaMlaUp::Half> WeightLoader::Heads(std::span<const float> values, int32_t num_heads, int32_t n,
                                                    int32_t k) {
  CudaMlaUp::Half half;
  half.first.format = activations_ == cuda::Element::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16;
  half.first.n = n;
  half.first.k = k;
  const int64_t bytes = cuda::PackedBytes(half.first.format, n, k, false);
  half.head_bytes = (bytes + 255) / 256 * 256;
  std::vector<std::byte> packed(static_cast<size_t>(num_heads * half.head_bytes));
  for (int32_t h = 0; h < num_heads; ++h) {
    TensorView head;
    head.shape = {n, k};
    head.data = absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data() + int64_t{h} * n * k),
                                    static_cast<size_t>(int64_t{n} * k) * sizeof(float));
    const std::vector<uint8_t> converted = Converted(head, half.first.format);
    const std::span<const uint8_t> part(converted);
    cuda::PackWeights(half.first.format, n, k, false, std::span(&part, 1),
                      std::span(packed).subspan(static_cast<size_t>(h * half.head_bytes), static_cast<size_t>(bytes)));
  }
  SLUICE_ASSIGN_OR_RETURN(half.data, DeviceBuffer::Copy<std::byte>(device_, packed));
  half.first.data = half.data.data();
  return half;
}

absl::StatusOr<std::unique_ptr<CudaMlaUp>> WeightLoader::MlaUp(const TensorView& key_up, const TensorView& value_up,
                                                               const MlaShape& heads) {
  SLUICE_RETURN_IF_ERROR(ValidateMlaUp(key_up, value_up, heads));
  if (heads.qk_nope_head_dim % 8 != 0 || heads.kv_lora_rank % 8 != 0 || heads.qk_rope_head_dim % 8 != 0 ||
      heads.v_head_dim % 8 != 0) {
    return absl::UnimplementedError(absl::StrCat("tensor ", key_up.name, ": heads of ", heads.qk_nope_head_dim, " + ",
                                                 heads.qk_rope_head_dim, " and ", heads.v_head_dim, " over latents of ",
                                                 heads.kv_lora_rank, "; on a GPU all must be multiples of 8"));
  }
  const auto floats = [](const TensorView& view) {
    const std::vector<uint8_t> bytes = Converted(view, WeightFormat::kF32);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const int32_t nope = heads.qk_nope_head_dim, latent = heads.kv_lora_rank;
  const std::vector<float> key = floats(key_up);
  std::vector<float> turned(key.size());  // [head][latent][nope]
  for (int64_t h = 0; h < heads.num_heads; ++h) {
    for (int64_t n = 0; n < nope; ++n) {
      for (int64_t l = 0; l < latent; ++l) turned[(h * latent + l) * nope + n] = key[(h * nope + n) * latent + l];
    }
  }
  auto up = std::make_unique<CudaMlaUp>();
  SLUICE_ASSIGN_OR_RETURN(up->key_, Heads(turned, heads.num_heads, latent, nope));
  SLUICE_ASSIGN_OR_RETURN(up->value_, Heads(floats(value_up), heads.num_heads, heads.v_head_dim, latent));
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
