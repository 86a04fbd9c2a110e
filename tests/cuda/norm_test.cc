// Norms, residual additions and conversions against double precision.
#include "engine/ops/cuda/kernels/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/values.h"

namespace sluice::cuda_testing {
namespace {

using cuda::Element;
using testing::ElementsAreArray;

constexpr int kSizes[] = {1,    2,    3,    4,    5,    8,    31,   64,   127,  128,  129,  576,  1000,
                          1023, 1024, 1025, 2048, 2052, 3001, 4096, 4097, 5000, 8192, 9001, 20480};

// The norm of one row by its definition (engine/base/layer_types.h).
std::vector<double> Normed(const NormParams& params, const float* x, int d, const float* weight, const float* bias) {
  double mean = 0, square = 0;
  if (params.kind == NormKind::kLayer) {
    for (int i = 0; i < d; ++i) mean += double(x[i]) / d;
  }
  for (int i = 0; i < d; ++i) square += (x[i] - mean) * (x[i] - mean) / d;
  std::vector<double> y(size_t(d), 0);
  for (int i = 0; i < d; ++i) {
    y[size_t(i)] = (x[i] - mean) / std::sqrt(square + double(params.eps));
    if (weight != nullptr) y[size_t(i)] *= double(weight[i]) + double(params.weight_offset);
    if (bias != nullptr) y[size_t(i)] += double(bias[i]);
  }
  return y;
}

struct Case {
  NormParams params;
  bool weight, bias;
};
const Case kCases[] = {{{NormKind::kRms, 1e-6f, 0}, true, false},
                       {{NormKind::kRms, 1e-5f, 1}, true, false},
                       {{NormKind::kRms, 1e-5f, 1}, false, false},
                       {{NormKind::kLayer, 1e-5f, 0}, true, true},
                       {{NormKind::kLayer, 1e-5f, 0}, false, false}};

struct Weights {
  Weights(const Case& norm_case, int d) : weight(Normal(size_t(d), 2)), bias(Normal(size_t(d), 3)) {
    device_weight.Write(weight), device_bias.Write(bias);
    view = {norm_case.params, norm_case.weight ? device_weight.data() : nullptr,
            norm_case.bias ? device_bias.data() : nullptr};
  }
  std::vector<float> weight, bias;
  DeviceArray<float> device_weight{weight.size()}, device_bias{bias.size()};
  cuda::NormWeightsView view;
};

std::vector<double> Want(const Case& c, const Weights& w, const std::vector<float>& x, int d) {
  std::vector<double> want;
  for (size_t first = 0; first < x.size(); first += size_t(d)) {
    const auto y =
        Normed(c.params, &x[first], d, c.weight ? w.weight.data() : nullptr, c.bias ? w.bias.data() : nullptr);
    want.insert(want.end(), y.begin(), y.end());
  }
  return want;
}

TEST(Norm, AgreesWithDoublePrecisionAtEverySize) {
  for (int d : kSizes) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(testing::Message() << "d " << d << " kind " << int(c.params.kind));
      Weights weights(c, d);
      const std::vector<float> x = Normal(size_t(3 * d), uint32_t(d), 3);
      DeviceArray<float> device_x(x), y_f32(size_t(3 * d));
      ElementArray y(Element::kBF16, size_t(3 * d));
      cuda::LaunchNorm(
          {.num_rows = 3, .d = d, .x = device_x.data(), .norm = weights.view, .y = y.data(), .y_f32 = y_f32.data()},
          nullptr);
      const std::vector<double> want = Want(c, weights, x, d);
      // A single value less its mean is nothing but the rounding of the mean.
      if (d > 1) {
        EXPECT_LE(RelativeError(y_f32.Read(), want), 3e-6);
      }
      EXPECT_LE(RelativeError(y.Read(), y_f32.Read()), 4e-3);
    }
  }
}

TEST(Norm, TakesTheRowsAskedForAndLeavesOutThoseThatAreNone) {
  for (const Case& c : {kCases[0], kCases[3]}) {  // one reduction, and two in the same memory
    for (int d : {5, 64}) {
      Weights weights(c, d);
      const std::vector<float> x = Normal(size_t(4 * d), 7);
      DeviceArray<float> device_x(x);
      DeviceArray<int32_t> rows(std::vector<int32_t>{2, -1, 0});
      ElementArray y(Element::kF32, size_t(3 * d));
      cuda::LaunchNorm({.num_rows = 3,
                        .d = d,
                        .x = device_x.data(),
                        .rows = rows.data(),
                        .norm = weights.view,
                        .y = y.data(),
                        .y_element = Element::kF32},
                       nullptr);
      const std::vector<double> all = Want(c, weights, x, d);
      std::vector<double> want(all.begin() + 2 * d, all.begin() + 3 * d);
      want.resize(size_t(2 * d), NAN);
      want.insert(want.end(), all.begin(), all.begin() + d);
      EXPECT_LE(RelativeError(y.Read(), want), 3e-6);
    }
  }
}

// Bits of rows 0 .. num_rows - 1 of one matrix, its first value `shift` floats behind a multiple of 256 bytes.
std::vector<float> Bits(int d, int num_rows, int shift) {
  Weights weights(kCases[3], d);
  std::vector<float> x = Normal(size_t(20 * d), 9);
  x.resize(size_t(num_rows * d));
  x.insert(x.begin(), size_t(shift), 0);
  DeviceArray<float> device_x(x), y(size_t(num_rows * d));
  cuda::LaunchNorm(
      {.num_rows = num_rows, .d = d, .x = device_x.data() + shift, .norm = weights.view, .y_f32 = y.data()}, nullptr);
  return y.Read();
}

TEST(Norm, ARowHasItsBitsInAnyBatch) {
  for (int d : {64, 1000, 1025}) {
    const std::vector<float> all = Bits(d, 20, 0);
    for (int rows = 1; rows < 20; ++rows) {
      EXPECT_THAT(Bits(d, rows, rows % 4), ElementsAreArray(all.data(), size_t(rows * d)));
    }
  }
}

TEST(Norm, OfColumnsReadsNoOthers) {
  for (const auto& [d, stride] : {std::pair{512, 576}, {7, 9}, {64, 66}}) {
    Weights weights(kCases[1], d);
    std::vector<float> x = Normal(size_t(4 * stride), 5), part;
    for (int r = 0; r < 4; ++r) part.insert(part.end(), &x[size_t(r * stride)], &x[size_t(r * stride)] + d);
    for (int r = 0; r < 4; ++r) std::fill_n(&x[size_t(r * stride + d)], stride - d, NAN);
    x.resize(size_t(3 * stride + d));
    DeviceArray<float> device_x(x);
    ElementArray y(Element::kF32, size_t(4 * d));
    cuda::LaunchNormColumns({.num_rows = 4,
                             .d = d,
                             .x = device_x.data(),
                             .x_stride = stride,
                             .norm = weights.view,
                             .y = y.data(),
                             .y_element = Element::kF32},
                            nullptr);
    EXPECT_LE(RelativeError(y.Read(), Want(kCases[1], weights, part, d)), 3e-6);
  }
}

TEST(Norm, NanStaysInItsRow) {
  Weights weights(kCases[0], 100);
  std::vector<float> x = Normal(300, 5);
  x[170] = NAN;
  DeviceArray<float> device_x(x), y(300);
  cuda::LaunchNorm({.num_rows = 3, .d = 100, .x = device_x.data(), .norm = weights.view, .y_f32 = y.data()}, nullptr);
  const std::vector<float> got = y.Read();
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(std::isnan(got[i]), i / 100 == 1);
}

TEST(AddNormed, AddsTheNormOrTheValuesThemselves) {
  for (int d : {1, 3, 4, 64, 1001, 4096}) {
    for (bool has_norm : {false, true}) {
      SCOPED_TRACE(testing::Message() << "d " << d << " norm " << has_norm);
      Weights weights(kCases[1], d);
      const std::vector<float> y = Normal(size_t(3 * d), 5), x = Normal(size_t(3 * d), 6);
      DeviceArray<float> device_x(x), device_y(y);
      cuda::LaunchAddNormed({.num_rows = 3,
                             .d = d,
                             .y = device_y.data(),
                             .has_norm = has_norm,
                             .norm = weights.view,
                             .x = device_x.data()},
                            nullptr);
      std::vector<double> want = has_norm ? Want(kCases[1], weights, y, d) : std::vector<double>(y.begin(), y.end());
      for (size_t i = 0; i < want.size(); ++i) want[i] += double(x[i]);
      EXPECT_LE(RelativeError(device_x.Read(), want), 3e-6);
    }
  }
}

TEST(Convert, RoundsToNearestEven) {
  for (int shift : {0, 1}) {
    for (int n : {0, 1, 7, 8, 9, 2048, 5001}) {
      std::vector<float> x = Normal(size_t(n), 5, 100);
      if (n > 8) x[3] = INFINITY, x[4] = NAN, x[5] = 1 + 0x1p-8f, x[6] = 3e38f, x[7] = -0.0f;
      x.insert(x.begin(), size_t(shift), 0);
      DeviceArray<float> device_x(x);
      x.erase(x.begin(), x.begin() + shift);
      ElementArray f32(Element::kF32, size_t(n)), bf16(Element::kBF16, size_t(n));
      cuda::LaunchConvert(device_x.data() + shift, n, f32.data(), Element::kF32, nullptr);
      cuda::LaunchConvert(device_x.data() + shift, n, bf16.data(), Element::kBF16, nullptr);
      EXPECT_THAT(f32.Read(), testing::Pointwise(testing::NanSensitiveFloatEq(), x));
      for (float& v : x) v = Bf16ToFloat(FloatToBf16(v));
      EXPECT_THAT(bf16.Read(), testing::Pointwise(testing::NanSensitiveFloatEq(), x));
    }
  }
}

TEST(Norm, NoRowsAreNoLaunch) {
  cuda::LaunchNorm({.d = 8}, nullptr);
  cuda::LaunchAddNormed({.d = 8}, nullptr);
  cuda::LaunchNormColumns({.d = 8}, nullptr);
}

}  // namespace
}  // namespace sluice::cuda_testing
