// Small kernels against references in double precision: lengths 0 and 1, around a page, and no multiples of tiles. What
// nothing may read is NaN or an absurd index.
#include "tests/cuda_on_cpu/sample_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tests/cuda_on_cpu/test_array.h"

namespace sluice::cuda_testing {
namespace {

uint16_t ToBf16(float x) {  // to nearest, ties to even
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
double FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

Array<uint16_t>& Fill(Array<uint16_t>& values, std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (uint16_t& value : values) value = ToBf16(normal(random));
  return values;
}

// max |got - want| / max |want|; infinite where something is NaN.
class Error {
 public:
  void Add(double got, double want) {
    if (std::isnan(got)) difference_ = INFINITY;
    difference_ = std::max(difference_, std::abs(got - want));
    scale_ = std::max(scale_, std::abs(want));
  }
  double relative() const { return difference_ == 0 ? 0 : difference_ / scale_; }

 private:
  double difference_ = 0, scale_ = 0;
};

TEST(SampleKernels, UnitRows) {
  std::mt19937 random(1);
  for (const auto& [rows, n] : {std::pair{3, 8}, {2, 136}, {4, 2048}, {1, 2056}}) {
    Array<uint16_t> x(static_cast<size_t>(rows * n)), y(x.size());
    Fill(x, random);
    LaunchUnitRows(y.data(), x.data(), rows, n, nullptr);
    Error error;
    for (int row = 0; row < rows; ++row) {
      const auto at = [&](int i) { return static_cast<size_t>(row * n + i); };
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += FromBf16(x[at(i)]) * FromBf16(x[at(i)]);
      for (int i = 0; i < n; ++i) error.Add(FromBf16(y[at(i)]), FromBf16(x[at(i)]) / std::sqrt(sum / n));
    }
    EXPECT_LE(error.relative(), 5e-3) << rows << " " << n;
  }
}

TEST(SampleKernels, PagedMean) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  const std::vector<int32_t> lengths = {0, 1, 15, 16, 17, 48, 100};
  constexpr int32_t kMaxPages = 8, kTokensPerSplit = 32, kSplits = 4;
  const auto num_seqs = static_cast<int32_t>(lengths.size());
  Array<int32_t> length(lengths), table(lengths.size() * kMaxPages);
  std::vector<int32_t> free_pages(40);
  for (int32_t i = 0; i < 40; ++i) free_pages[static_cast<size_t>(i)] = i;
  std::shuffle(free_pages.begin(), free_pages.end(), random);
  Array<float> pages(40 * 16 * 64), partials(lengths.size() * kSplits * 64), y(lengths.size() * 64);
  std::fill(table.begin(), table.end(), 0x40000000);
  std::vector<double> want(lengths.size() * 64, 0.0);
  for (size_t seq = 0; seq < lengths.size(); ++seq) {
    for (int32_t token = 0; token < lengths[seq]; ++token) {
      int32_t& page = table[seq * kMaxPages + static_cast<size_t>(token / 16)];
      if (token % 16 == 0) {
        page = free_pages.back();
        free_pages.pop_back();
      }
      for (size_t i = 0; i < 64; ++i) {
        const float value = normal(random);
        pages[static_cast<size_t>(page * 16 + token % 16) * 64 + i] = value;
        want[seq * 64 + i] += double{value} / lengths[seq];
      }
    }
  }
  LaunchPagedMean({pages.data(), table.data(), length.data(), num_seqs, kMaxPages, kTokensPerSplit, partials.data(),
                   kSplits, y.data()},
                  nullptr);
  Error error;
  for (size_t i = 0; i < want.size(); ++i) error.Add(y[i], want[i]);
  EXPECT_LE(error.relative(), 1e-6);
}

TEST(SampleKernels, Products) {
  std::mt19937 random(3);
  struct Shape {
    int m, n, k;
  };
  for (const auto& [m, n, k] :
       {Shape{1, 1, 32}, Shape{32, 32, 32}, Shape{33, 31, 96}, Shape{70, 40, 128}, Shape{64, 96, 64}}) {
    Array<uint16_t> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k));
    Fill(a, random);
    Fill(b, random);
    for (bool wmma : {false, true}) {
      if (wmma && (m % 32 != 0 || n % 32 != 0)) continue;
      Array<float> c(static_cast<size_t>(m * n));
      (wmma ? LaunchProductByWmma : LaunchProductOfRows)(c.data(), a.data(), b.data(), m, n, k, nullptr);
      Error error;
      for (int row = 0; row < m; ++row) {
        for (int column = 0; column < n; ++column) {
          double sum = 0;
          for (int i = 0; i < k; ++i)
            sum += FromBf16(a[static_cast<size_t>(row * k + i)]) * FromBf16(b[static_cast<size_t>(column * k + i)]);
          error.Add(c[static_cast<size_t>(row * n + column)], sum);
        }
      }
      EXPECT_LE(error.relative(), 1e-5) << m << " " << n << " " << k << (wmma ? " wmma" : "");
    }
  }
}

}  // namespace
}  // namespace sluice::cuda_testing
