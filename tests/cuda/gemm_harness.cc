#include "tests/cuda/gemm_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/float16.h"
#include "engine/base/tensor_format.h"
#include "engine/ops/cuda/kernels/weight_packing.h"
#include "engine/ops/reference/reference_math.h"

namespace sluice::cuda_testing {
namespace {

// Bytes that stand for values of about 1 in magnitude at most: quantised blocks have any integers and small scales.
std::vector<uint8_t> FileBytes(TensorType format, int64_t elems, std::mt19937& random) {
  std::vector<uint8_t> bytes(TensorBytes(format, elems));
  std::uniform_int_distribution<int> any_byte(0, 255);
  std::uniform_real_distribution<float> scale(0.001f, 0.02f), value(-1.0f, 1.0f);
  const TensorTypeInfo& info = GetTensorTypeInfo(format);
  if (!info.quantized) {
    for (int64_t i = 0; i < elems; ++i) {
      const float f = value(random);
      const uint16_t half = format == TensorType::kF16 ? FloatToF16(f) : FloatToBf16(f);
      std::memcpy(&bytes[i * info.block_bytes], info.block_bytes == 4 ? static_cast<const void*>(&f) : &half,
                  info.block_bytes);
    }
    return bytes;
  }
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(any_byte(random));
  const auto put_scale = [&](uint8_t* at, float f) {
    const uint16_t half = FloatToF16(f);
    std::memcpy(at, &half, 2);
  };
  const BlockCodes& codes = FormatOf(format).codes;
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    put_scale(&bytes[at + codes.scale_at], scale(random) / (codes.two_level ? 16 : 1));
    if (!codes.affine) continue;
    put_scale(&bytes[at + codes.offset_at], (codes.two_level ? scale(random) : -value(random)) / 4);
  }
  return bytes;
}

}  // namespace

std::vector<TensorType> GpuTypes() {
  std::vector<TensorType> types;
  for (const TensorFormat& row : kTensorFormats) {
    if (HasGpuForm(row.type)) types.push_back(row.type);
  }
  return types;
}

int32_t KOf(TensorType format, int32_t about) {
  const int32_t step = std::max(8, GetTensorTypeInfo(format).block_elems);
  return std::max(step, about / step * step);
}

Weights::Weights(TensorType format, int32_t n, int32_t k, bool gated, int32_t count, std::mt19937& random)
    : format_(format),
      n_(n),
      k_(k),
      gated_(gated),
      packed_bytes_(cuda::PackedBytes(format, n, k, gated)),
      values_(int64_t{count} * n * k),
      device_(packed_bytes_ * count) {
  std::vector<std::byte> packed(packed_bytes_ * count);
  for (int32_t i = 0; i < count; ++i) {
    const std::vector<uint8_t> bytes = FileBytes(format, int64_t{n} * k, random);
    DequantizeRow(format, bytes.data(), int64_t{n} * k, &values_[int64_t{i} * n * k]);
    std::vector<std::span<const uint8_t>> parts = {bytes};
    if (n % 2 == 0) parts = {std::span(bytes).first(bytes.size() / 2), std::span(bytes).last(bytes.size() / 2)};
    cuda::PackWeights(format, n, k, gated, parts, std::span(packed).subspan(i * packed_bytes_, packed_bytes_));
  }
  device_.Write(packed);
}

cuda::WeightMatrix Weights::matrix() const {
  return {.data = device_.data(), .format = format_, .n = n_, .k = k_, .gated = gated_};
}

Matrix::Matrix(cuda::Element element, int32_t rows, int32_t cols, int64_t stride, std::mt19937* random)
    : element_(element),
      rows_(rows),
      cols_(cols),
      stride_(stride),
      host_(rows * stride * cuda::ElementBytes(element), 0xff),
      bytes_(host_) {
  SLUICE_CHECK(stride >= cols);
  if (random == nullptr) return;
  std::normal_distribution<float> value;
  for (int32_t row = 0; row < rows; ++row)
    for (int32_t column = 0; column < cols; ++column) Set(row, column, value(*random));
  Upload();
}

size_t Matrix::Offset(int32_t row, int64_t column) const {
  return (row * stride_ + column) * cuda::ElementBytes(element_);
}

void Matrix::Set(int32_t row, int32_t column, float value) {
  const uint16_t rounded = FloatToBf16(value);
  std::memcpy(&host_[Offset(row, column)],
              element_ == cuda::Element::kF32 ? static_cast<const void*>(&value) : &rounded,
              cuda::ElementBytes(element_));
}

void Matrix::Upload() { bytes_.Write(host_); }
void Matrix::Download() { host_ = bytes_.Read(); }

float Matrix::operator()(int32_t row, int32_t column) const {
  if (element_ == cuda::Element::kF32) {
    float value;
    std::memcpy(&value, &host_[Offset(row, column)], 4);
    return value;
  }
  uint16_t value;
  std::memcpy(&value, &host_[Offset(row, column)], 2);
  return Bf16ToFloat(value);
}

std::vector<uint32_t> Matrix::Row(int32_t row) const {
  std::vector<uint32_t> bits(cols_);
  for (int32_t column = 0; column < cols_; ++column)
    std::memcpy(&bits[column], &host_[Offset(row, column)], cuda::ElementBytes(element_));
  return bits;
}

bool Matrix::PaddingIsNan() const {
  for (int32_t row = 0; row < rows_; ++row)
    for (size_t at = Offset(row, cols_); at < Offset(row, stride_); ++at)
      if (host_[at] != 0xff) return false;
  return true;
}

std::vector<double> Expectation::operator()(int32_t x_row, int32_t which, double scale) const {
  const int32_t n = gemm.w.n, k = gemm.w.k;
  std::vector<double> y(n);
  for (int32_t row = 0; row < n; ++row) {
    double sum = 0;
    for (int32_t i = 0; i < k; ++i) sum += weights->value(which, row, i) * double{(*x)(x_row, i)};
    y[row] = scale * sum + (bias.empty() ? 0.0 : bias[int64_t{which} * n + row]);
    if (gemm.activate) y[row] = reference::Activate(gemm.activation, y[row]);
  }
  if (gemm.epilogue != cuda::Epilogue::kGated) return y;
  std::vector<double> gated(n / 2);
  for (int32_t i = 0; i < n / 2; ++i)
    gated[i] = reference::ActivateGated(gemm.activation, gemm.alpha, gemm.limit, y[i], y[n / 2 + i]);
  return gated;
}

void ErrorMeter::Compare(double got, double want) {
  const double error = std::abs(got - want);
  worst_ = error <= worst_ ? worst_ : error;  // a NaN stays
  largest_ = std::max(largest_, std::abs(want));
}

double ErrorMeter::error() const { return worst_ == 0 ? 0 : worst_ / largest_; }

}  // namespace sluice::cuda_testing
