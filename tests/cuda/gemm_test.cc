// Products with weights, in every format, against double precision; and that a row has the same bits in any company.
#include "engine/ops/cuda/kernels/gemm.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/cuda/gemm_harness.h"

namespace sluice::cuda_testing {
namespace {

using cuda::Element;
using cuda::Epilogue;
using cuda::GemmKernel;

constexpr double kF32Tolerance = 4e-6;  // outputs in f32: what remains are roundings of sums
constexpr double kBf16Tolerance = 5e-3;

class GemmTest : public testing::TestWithParam<TensorType> {
 protected:
  bool is_f32() const { return GetParam() == TensorType::kF32; }
  Element x_element() const { return is_f32() ? Element::kF32 : Element::kBF16; }
  Matrix RandomX(int32_t m, int32_t k) { return Matrix(x_element(), m, k, (k + 7) / 8 * 8 + 8, &random_); }
  std::vector<float> RandomBias(int64_t n) {
    std::normal_distribution<float> value;
    std::vector<float> bias(n);
    for (float& b : bias) b = value(random_);
    return bias;
  }
  static cuda::GemmArgs Args(int32_t m, Matrix& x, const Weights& w, Matrix& out) {
    return {.m = m,
            .x = x.data(),
            .x_element = x.element(),
            .x_stride = x.stride(),
            .w = w.matrix(),
            .out = out.data(),
            .out_element = out.element(),
            .out_stride = out.stride()};
  }

  std::mt19937 random_{20260105};
};

std::string NameOf(const testing::TestParamInfo<TensorType>& info) { return TensorTypeName(info.param); }

TEST_P(GemmTest, MatchesDoubleForEveryNumberOfRows) {
  const int32_t n = 40, k = KOf(GetParam(), 584);
  const Weights w(GetParam(), n, k, false, 1, random_);
  Matrix x = RandomX(130, k);
  const Expectation expect{.weights = &w, .x = &x, .gemm = {.w = w.matrix()}};
  std::vector<std::vector<double>> want;
  for (int32_t row = 0; row < x.rows(); ++row) want.push_back(expect(row, 0));
  std::vector<std::vector<uint32_t>> bits(x.rows());
  for (const int32_t m :
       {130, 100, 65, 64, 33, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}) {
    for (const GemmKernel kernel : {GemmKernel::kSkinny, GemmKernel::kTiled}) {
      // The tiles of many rows do not care how few they are: two sizes show it.
      if (kernel == GemmKernel::kTiled && m != 130 && m != 20) continue;
      Matrix out(Element::kF32, m, n, n + 3);
      cuda::LaunchProduct(cuda::ToProduct(Args(m, x, w, out)), kernel, nullptr);
      out.Download();
      ErrorMeter error;
      for (int32_t row = 0; row < m; ++row) {
        for (int32_t i = 0; i < n; ++i) error.Compare(out(row, i), want[row][i]);
        if (bits[row].empty()) bits[row] = out.Row(row);
        EXPECT_EQ(out.Row(row), bits[row]) << "row " << row << " of " << m;
      }
      EXPECT_LE(error.error(), kF32Tolerance) << m << " rows";
      EXPECT_TRUE(out.PaddingIsNan()) << m << " rows";
    }
  }
}

// Slices of several tiles, not all of the same number, and of more steps than are on their way at a time.
TEST_P(GemmTest, LongRows) {
  for (const int32_t m : {3, 20}) {
    const int32_t n = 16, k = KOf(GetParam(), 256) * 19;
    const Weights w(GetParam(), n, k, false, 1, random_);
    Matrix x = RandomX(m, k);
    const Expectation expect{.weights = &w, .x = &x, .gemm = {.w = w.matrix()}};
    Matrix skinny(Element::kF32, m, n, n), tiled(Element::kF32, m, n, n);
    cuda::LaunchProduct(cuda::ToProduct(Args(m, x, w, skinny)), GemmKernel::kSkinny, nullptr);
    cuda::LaunchProduct(cuda::ToProduct(Args(m, x, w, tiled)), GemmKernel::kTiled, nullptr);
    skinny.Download();
    tiled.Download();
    ErrorMeter error;
    for (int32_t row = 0; row < m; ++row) {
      const std::vector<double> want = expect(row, 0);
      for (int32_t i = 0; i < n; ++i) error.Compare(skinny(row, i), want[i]);
      EXPECT_EQ(skinny.Row(row), tiled.Row(row));
    }
    EXPECT_LE(error.error(), kF32Tolerance);
  }
}

TEST_P(GemmTest, ARowHasItsBitsAtAnyPlace) {
  const int32_t n = 24, k = KOf(GetParam(), 264), m = 70;
  const Weights w(GetParam(), n, k, false, 1, random_);
  Matrix x = RandomX(m, k);
  Matrix all(Element::kF32, m, n, n);
  cuda::LaunchProduct(cuda::ToProduct(Args(m, x, w, all)), GemmKernel::kTiled, nullptr);
  all.Download();
  for (const int32_t row : {0, 1, 7, 8, 30, 63, 64, 69}) {
    Matrix alone(Element::kF32, 1, n, n);
    cuda::GemmArgs args = Args(1, x, w, alone);
    args.x = static_cast<const std::byte*>(x.data()) + row * x.stride() * cuda::ElementBytes(x.element());
    cuda::LaunchGemm(args, nullptr);
    alone.Download();
    EXPECT_EQ(alone.Row(0), all.Row(row)) << row;
  }
}

TEST_P(GemmTest, AnyShape) {
  for (const int32_t n : {1, 8, 15, 17, 130}) {
    for (const int32_t about : {8, 24, 64, 72, 520}) {
      const int32_t k = KOf(GetParam(), about), m = 5;
      const Weights w(GetParam(), n, k, false, 1, random_);
      Matrix x = RandomX(m, k);
      for (const GemmKernel kernel : {GemmKernel::kSkinny, GemmKernel::kTiled}) {
        Matrix out(Element::kBF16, m, n, n);
        cuda::LaunchProduct(cuda::ToProduct(Args(m, x, w, out)), kernel, nullptr);
        out.Download();
        const Expectation expect{.weights = &w, .x = &x, .gemm = {.w = w.matrix()}};
        ErrorMeter error;
        for (int32_t row = 0; row < m; ++row) {
          const std::vector<double> want = expect(row, 0);
          for (int32_t i = 0; i < n; ++i) error.Compare(out(row, i), want[i]);
        }
        EXPECT_LE(error.error(), kBf16Tolerance) << n << " x " << k;
      }
    }
  }
}

// So many rows of weights, and tokens, that other sizes of blocks are chosen.
TEST_P(GemmTest, LargeMatrices) {
  // The others choose as one of these.
  if (GetParam() != TensorType::kBF16 && GetParam() != TensorType::kQ8_0) return;
  const int32_t n = 6150, k = KOf(GetParam(), 16), m = 130;
  const Weights w(GetParam(), n, k, false, 1, random_);
  Matrix x = RandomX(m, k);
  Matrix all(Element::kF32, m, n, n);
  cuda::LaunchGemm(Args(m, x, w, all), nullptr);
  all.Download();
  const Expectation expect{.weights = &w, .x = &x, .gemm = {.w = w.matrix()}};
  ErrorMeter error;
  for (const int32_t row : {0, 64, 129}) {
    const std::vector<double> want = expect(row, 0);
    for (int32_t i = 0; i < n; ++i) error.Compare(all(row, i), want[i]);
  }
  EXPECT_LE(error.error(), kF32Tolerance);
  for (const int32_t few : {3, 20, 40}) {
    Matrix out(Element::kF32, few, n, n);
    cuda::LaunchProduct(cuda::ToProduct(Args(few, x, w, out)), GemmKernel::kSkinny, nullptr);
    out.Download();
    for (int32_t row = 0; row < few; ++row) EXPECT_TRUE(out.Row(row) == all.Row(row)) << row << " of " << few;
  }
}

// All epilogues, by either kernel.
TEST_P(GemmTest, Epilogues) {
  const int32_t m = 5, k = KOf(GetParam(), 72);
  for (const bool has_bias : {false, true}) {
    for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kAccumulate, Epilogue::kGated}) {
      for (const auto activation :
           {ActivationKind::kSilu, ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSwigluOai}) {
        const bool gated = epilogue == Epilogue::kGated;
        if (epilogue == Epilogue::kAccumulate && activation != ActivationKind::kSilu) continue;
        if (epilogue == Epilogue::kStore && activation == ActivationKind::kSwigluOai) continue;
        const int32_t n = gated ? 44 : 43, columns = gated ? n / 2 : n;
        const Weights w(GetParam(), n, k, gated, 1, random_);
        Matrix x = RandomX(m, k);
        const std::vector<float> bias = has_bias ? RandomBias(n) : std::vector<float>();
        const DeviceArray<float> device_bias(bias);
        for (const GemmKernel kernel : {GemmKernel::kSkinny, GemmKernel::kTiled}) {
          const bool accumulate = epilogue == Epilogue::kAccumulate;
          Matrix out(accumulate || has_bias ? Element::kF32 : Element::kBF16, m, columns, columns + 1,
                     accumulate ? &random_ : nullptr);
          std::vector<float> residual;
          for (int32_t row = 0; row < m; ++row)
            for (int32_t i = 0; i < columns; ++i) residual.push_back(out(row, i));
          cuda::GemmArgs args = Args(m, x, w, out);
          args.bias = has_bias ? device_bias.data() : nullptr;
          args.epilogue = epilogue;
          args.activation = activation;
          args.limit = 1.5f;  // small enough that it is reached
          args.activate = epilogue == Epilogue::kStore && activation != ActivationKind::kSilu;
          cuda::LaunchProduct(cuda::ToProduct(args), kernel, nullptr);
          out.Download();
          const Expectation expect{.weights = &w, .x = &x, .bias = bias, .gemm = args};
          ErrorMeter error;
          for (int32_t row = 0; row < m; ++row) {
            const std::vector<double> want = expect(row, 0);
            for (int32_t i = 0; i < columns; ++i)
              error.Compare(out(row, i), want[i] + (accumulate ? residual[row * columns + i] : 0.0));
          }
          EXPECT_LE(error.error(), out.element() == Element::kF32 ? kF32Tolerance : kBf16Tolerance)
              << static_cast<int>(epilogue) << " " << static_cast<int>(activation) << " " << has_bias;
          EXPECT_TRUE(out.PaddingIsNan());
        }
      }
    }
  }
}

// One product a head, operands interleaved as MLA has them.
TEST_P(GemmTest, Batched) {
  const int32_t heads = 3, n = 24, k = KOf(GetParam(), 40), head_stride = (k + 7) / 8 * 8 + 16;
  const Weights w(GetParam(), n, k, false, heads, random_);
  for (const int32_t m : {1, 18}) {
    for (const GemmKernel kernel : {GemmKernel::kSkinny, GemmKernel::kTiled}) {
      Matrix x(x_element(), m, heads * head_stride, heads * head_stride, &random_);
      for (int32_t row = 0; row < m; ++row)
        for (int32_t i = 0; i < x.cols(); ++i)
          if (i % head_stride >= k) x.Set(row, i, NAN);
      x.Upload();
      Matrix out(Element::kF32, m, heads * n, heads * n);
      cuda::LaunchProduct(cuda::ToProduct(cuda::BatchedGemmArgs{.each = Args(m, x, w, out),
                                                                .num_batches = heads,
                                                                .x_batch_stride = head_stride,
                                                                .w_batch_bytes = w.packed_bytes(),
                                                                .out_batch_stride = n}),
                          kernel, nullptr);
      out.Download();
      ErrorMeter error;
      for (int32_t row = 0; row < m; ++row)
        for (int32_t head = 0; head < heads; ++head)
          for (int32_t i = 0; i < n; ++i) {
            double want = 0;
            for (int32_t j = 0; j < k; ++j) want += w.value(head, i, j) * double{x(row, head * head_stride + j)};
            error.Compare(out(row, head * n + i), want);
          }
      EXPECT_LE(error.error(), kF32Tolerance) << m;
    }
  }
}

// Of experts: some without places, one with more than a tile, one with all; rows repeated, scaled, gated.
TEST_P(GemmTest, Grouped) {
  const std::vector<std::vector<int32_t>> counts_of_experts = {
      {0, 3, 0, 71, 1, 0}, {0, 0, 20, 0, 0, 0}, {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}, {9, 0, 0, 0, 0, 8}};
  const int32_t experts = 6, n = 24, k = KOf(GetParam(), 72), rows = 11;
  for (const bool gated : {false, true}) {
    const Weights w(GetParam(), n, k, gated, experts, random_);
    Matrix x = RandomX(rows, k);
    const std::vector<float> bias = RandomBias(experts * n);
    const DeviceArray<float> device_bias(bias);
    for (const std::vector<int32_t>& counts : counts_of_experts) {
      std::vector<int32_t> starts = {0}, input_rows;
      std::vector<float> scales;
      for (const int32_t count : counts) {
        starts.push_back(starts.back() + count);
        for (int32_t i = 0; i < count; ++i) {
          input_rows.push_back(static_cast<int32_t>(random_() % rows));
          scales.push_back(static_cast<float>(random_() % 8) / 4);
        }
      }
      const int32_t m = starts.back();
      const DeviceArray<int32_t> device_starts(starts), device_rows(input_rows);
      const DeviceArray<float> device_scales(scales);
      for (const GemmKernel kernel : {GemmKernel::kSkinny, GemmKernel::kTiled, GemmKernel::kFastest}) {
        Matrix out(Element::kF32, m, gated ? n / 2 : n, n);
        cuda::GroupedGemmArgs args = {.each = Args(m, x, w, out),
                                      .num_experts = experts,
                                      .w_expert_bytes = w.packed_bytes(),
                                      .expert_starts = device_starts.data(),
                                      .input_rows = device_rows.data(),
                                      .input_scale = device_scales.data()};
        args.each.bias = device_bias.data();
        args.each.epilogue = gated ? Epilogue::kGated : Epilogue::kStore;
        cuda::LaunchProduct(cuda::ToProduct(args), kernel, nullptr);
        out.Download();
        const Expectation expect{.weights = &w, .x = &x, .bias = bias, .gemm = args.each};
        ErrorMeter error;
        for (int32_t expert = 0; expert < experts; ++expert)
          for (int32_t place = starts[expert]; place < starts[expert + 1]; ++place) {
            const std::vector<double> want = expect(input_rows[place], expert, scales[place]);
            for (int32_t i = 0; i < out.cols(); ++i) error.Compare(out(place, i), want[i]);
          }
        EXPECT_LE(error.error(), kF32Tolerance) << m << " places";
        EXPECT_TRUE(out.PaddingIsNan());
      }
    }
  }
}

// Without input_rows a place is a row; more experts than a warp has lanes; the bits are those of a plain product.
TEST_P(GemmTest, GroupedPlacesHaveTheBitsOfPlainRows) {
  const int32_t experts = 70, n = 16, k = KOf(GetParam(), 64);
  const Weights w(GetParam(), n, k, false, experts, random_);
  std::vector<int32_t> starts = {0};
  for (int32_t expert = 0; expert < experts; ++expert)
    starts.push_back(starts.back() + (expert == 33 ? 3 : expert == 69 ? 10 : expert % 23 == 0));
  const int32_t m = starts.back();
  const DeviceArray<int32_t> device_starts(starts);
  Matrix x = RandomX(m, k), out(Element::kF32, m, n, n);
  cuda::LaunchGroupedGemm({.each = Args(m, x, w, out),
                           .num_experts = experts,
                           .w_expert_bytes = w.packed_bytes(),
                           .expert_starts = device_starts.data()},
                          nullptr);
  out.Download();
  for (int32_t expert = 0; expert < experts; ++expert) {
    for (int32_t place = starts[expert]; place < starts[expert + 1]; ++place) {
      Matrix alone(Element::kF32, 1, n, n);
      cuda::GemmArgs args = Args(1, x, w, alone);
      args.x = static_cast<const std::byte*>(x.data()) + place * x.stride() * cuda::ElementBytes(x.element());
      args.w.data = static_cast<const std::byte*>(args.w.data) + expert * w.packed_bytes();
      cuda::LaunchGemm(args, nullptr);
      alone.Download();
      EXPECT_EQ(alone.Row(0), out.Row(place)) << "place " << place << " of expert " << expert;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GemmTest, testing::ValuesIn(GpuTypes()), NameOf);

// bf16 values beyond the largest f16 become that one; a NaN stays a NaN.
TEST(GemmF16, InputsSaturate) {
  std::mt19937 random(1);
  const TensorType format = TensorType::kF16;
  const int32_t n = 16, k = 16;
  const Weights w(format, n, k, false, 1, random);
  Matrix x(Element::kBF16, 3, k, k), out(Element::kF32, 3, n, n);
  for (int32_t i = 0; i < k; ++i) {
    x.Set(0, i, i == 3 ? 3e38f : 0.0f);
    x.Set(1, i, i == 3 ? -1e6f : 0.0f);
    x.Set(2, i, i == 3 ? NAN : 0.0f);
  }
  x.Upload();
  cuda::LaunchGemm({.m = 3,
                    .x = x.data(),
                    .x_stride = k,
                    .w = w.matrix(),
                    .out = out.data(),
                    .out_element = Element::kF32,
                    .out_stride = n},
                   nullptr);
  out.Download();
  for (int32_t i = 0; i < n; ++i) {
    EXPECT_EQ(out(0, i), static_cast<float>(65504 * w.value(0, i, 3)));
    EXPECT_EQ(out(1, i), static_cast<float>(-65504 * w.value(0, i, 3)));
    EXPECT_TRUE(std::isnan(out(2, i)));
  }
}

}  // namespace
}  // namespace sluice::cuda_testing
