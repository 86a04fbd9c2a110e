// Weight matrices in a file's form with the values they stand for, products by definition in double, and the device
// arrays of a launch.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/base/tensor_type.h"
#include "engine/ops/cuda/kernels/gemm_product.h"
#include "tests/cuda/device_array.h"

namespace sluice::cuda_testing {

// The types of which the GPU has a form.
std::vector<TensorType> GpuTypes();

// Some k that the type can have, near `about`.
int32_t KOf(TensorType format, int32_t about);

// `count` matrices [n, k], one after the other on the device.
class Weights {
 public:
  Weights(TensorType format, int32_t n, int32_t k, bool gated, int32_t count, std::mt19937& random);

  cuda::WeightMatrix matrix() const;  // the first
  int64_t packed_bytes() const { return packed_bytes_; }
  double value(int32_t which, int32_t row, int32_t column) const {
    return values_[(int64_t{which} * n_ + row) * k_ + column];
  }

 private:
  const TensorType format_;
  const int32_t n_, k_;
  const bool gated_;
  int64_t packed_bytes_ = 0;
  std::vector<float> values_;
  DeviceArray<std::byte> device_;
};

// [rows, cols] of f32 or bf16 values on the device, `stride` elements from row to row, NaN between the rows.
class Matrix {
 public:
  // All NaN, or of normal distribution.
  Matrix(cuda::Element element, int32_t rows, int32_t cols, int64_t stride, std::mt19937* random = nullptr);
  void Set(int32_t row, int32_t column, float value);  // on the host, until Upload
  void Upload();
  // What the device holds now.
  void Download();

  void* data() { return bytes_.data(); }
  cuda::Element element() const { return element_; }
  int64_t stride() const { return stride_; }
  int32_t rows() const { return rows_; }
  int32_t cols() const { return cols_; }
  float operator()(int32_t row, int32_t column) const;
  // The bits of a row.
  std::vector<uint32_t> Row(int32_t row) const;
  // True if nothing but rows' columns has been written.
  bool PaddingIsNan() const;

 private:
  size_t Offset(int32_t row, int64_t column) const;
  const cuda::Element element_;
  const int32_t rows_, cols_;
  const int64_t stride_;
  std::vector<uint8_t> host_;
  DeviceArray<uint8_t> bytes_;
};

// What place `place` must be: products, then scale, bias and epilogue, in double.
struct Expectation {
  const Weights* weights = nullptr;
  const Matrix* x = nullptr;
  std::vector<float> bias = {};  // [count, n] or empty
  cuda::GemmArgs gemm = {};      // epilogue, activation and the shape
  // Row of x, weight matrix and scale of a place.
  std::vector<double> operator()(int32_t x_row, int32_t which, double scale = 1) const;
};

// max |got - want| / max |want| over all.
class ErrorMeter {
 public:
  void Compare(double got, double want);
  double error() const;

 private:
  double worst_ = 0, largest_ = 0;
};

}  // namespace sluice::cuda_testing
