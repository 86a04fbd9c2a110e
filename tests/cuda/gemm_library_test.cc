// What GemmLibrary promises, of cuBLASLt: above all that a row has the same bits however many others there are. With
// the library itself where the test is built for a GPU, else with the emulated one.
#include "engine/ops/cuda/gemm_library.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include "engine/base/float16.h"
#include "engine/ops/cuda/device_buffer.h"
#include "tests/cuda/test_device.h"
#include "tests/gpu/library.h"

namespace sluice::cuda_testing {
namespace {

struct Shape {
  int32_t n, k;
};

// Between -1 and 1.
std::vector<uint16_t> RandomBf16(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> values(static_cast<size_t>(size));
  for (uint16_t& v : values) v = FloatToBf16(static_cast<float>(random()) * 0x1p-31f - 1);
  return values;
}

class GemmLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<GemmLibrary>> library = NewTestLibrary();
    if (!library.ok()) GTEST_SKIP() << library.status();
    library_ = *std::move(library);
  }

  bool emulated() const { return device_->Name() == "emulated GPU"; }

  // The library may refuse what no model has; the emulated one refuses [64, 40] alone.
  bool Takes(const Shape& shape) {
    const absl::Status prepared = library_->Prepare(shape.n, shape.k);
    const bool may_refuse = emulated() ? shape.n == 64 && shape.k == 40 : int64_t{shape.n} * shape.k < 1 << 18;
    if (!prepared.ok()) std::cout << prepared.message() << std::endl;
    EXPECT_TRUE(prepared.ok() || (may_refuse && absl::IsUnimplemented(prepared))) << prepared;
    return prepared.ok();
  }

  template <class T>
  DeviceBuffer ToDevice(const std::vector<T>& values) {
    return DeviceBuffer::Copy<T>(device_.get(), values).value();
  }
  std::vector<float> ToHost(const DeviceBuffer& buffer) {
    std::vector<float> values(static_cast<size_t>(buffer.bytes()) / 4);
    device_->Download(values.data(), buffer.data(), buffer.bytes());
    EXPECT_TRUE(device_->Synchronize().ok());
    return values;
  }

  const std::unique_ptr<Device> device_ = NewTestDevice().value();
  std::unique_ptr<GemmLibrary> library_;
};

TEST_F(GemmLibraryTest, ARowHasTheSameBitsInAnyBatch) {
  const int32_t most = emulated() ? 70 : GemmLibrary::kMaxRows;
  const std::vector<Shape> shapes =
      emulated() ? std::vector<Shape>{{8, 8}, {64, 40}, {64, 72}, {40, 1032}, {136, 264}}
                 : std::vector<Shape>{{8, 8},       {136, 1032},  {1024, 4096},  {2816, 576},  {3072, 2048},
                                      {4096, 4096}, {6144, 4096}, {4096, 14336}, {28672, 4096}};
  for (const auto& [n, k] : shapes) {
    SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "]");
    if (!Takes({n, k})) continue;
    const DeviceBuffer x = ToDevice(RandomBf16(int64_t{most} * k, 1)), w = ToDevice(RandomBf16(int64_t{n} * k, 2));
    const auto run = [&](int32_t first, int32_t m, bool accumulate) {
      const int64_t bytes = int64_t{m} * n * 4;
      const DeviceBuffer out = accumulate ? ToDevice(std::vector<float>(static_cast<size_t>(m) * n, 0.3f))
                                          : DeviceBuffer::Create(device_.get(), bytes).value();
      LibraryProduct product{.m = m, .n = n, .k = k, .x = x.as<uint16_t>() + int64_t{first} * k, .x_stride = k};
      product.w = w.data(), product.out = out.as<float>(), product.out_stride = n, product.accumulate = accumulate;
      EXPECT_TRUE(library_->Multiply(product, device_->stream()).ok());
      return ToHost(out);
    };
    for (const bool accumulate : {false, true}) {
      const std::vector<float> all = run(0, most, accumulate);
      for (const int32_t m : {1, 2, 3, 5, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1000, 2047}) {
        if (m > most) break;
        for (const int32_t first : {0, most - m}) {
          const std::vector<float> some = run(first, m, accumulate);
          ASSERT_EQ(std::memcmp(some.data(), all.data() + int64_t{first} * n, some.size() * 4), 0)
              << m << " rows from " << first << (accumulate ? ", accumulated" : "");
        }
      }
    }
  }
}

TEST_F(GemmLibraryTest, AgreesWithSumsInDoubleAndWritesNothingElse) {
  for (const auto& [n, k] : {Shape{8, 8}, Shape{72, 200}, Shape{264, 1024}}) {
    if (!Takes({n, k})) continue;
    const int32_t m = 37;
    const int64_t x_stride = k + 16, out_stride = n + 12;
    const std::vector<uint16_t> xs = RandomBf16(m * x_stride, 3), ws = RandomBf16(int64_t{n} * k, 4);
    const DeviceBuffer x = ToDevice(xs), w = ToDevice(ws);
    for (const bool accumulate : {false, true}) {
      const DeviceBuffer out = ToDevice(std::vector<float>(static_cast<size_t>(m * out_stride), accumulate ? 2 : NAN));
      LibraryProduct product{.m = m, .n = n, .k = k, .x = x.data(), .x_stride = x_stride};
      product.w = w.data(), product.out = out.as<float>(), product.out_stride = out_stride;
      product.accumulate = accumulate;
      ASSERT_TRUE(library_->Multiply(product, device_->stream()).ok());
      const std::vector<float> got = ToHost(out);
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t column = 0; column < out_stride; ++column) {
          const float value = got[static_cast<size_t>(row * out_stride + column)];
          if (column >= n) {
            ASSERT_TRUE(accumulate ? value == 2 : std::isnan(value)) << row << ", " << column;
            continue;
          }
          double sum = accumulate ? 2 : 0, size = 1;
          for (int64_t i = 0; i < k; ++i) {
            const double term = double{Bf16ToFloat(xs[static_cast<size_t>(row * x_stride + i)])} *
                                double{Bf16ToFloat(ws[static_cast<size_t>(column * k + i)])};
            sum += term, size += std::abs(term);
          }
          ASSERT_LE(std::abs(value - sum), 1e-6 * size) << row << ", " << column;
        }
      }
    }
  }
}

TEST_F(GemmLibraryTest, ChoosesOnceForAShape) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Takes({512, 512}));
    ASSERT_TRUE(Takes({512, 1024}));
    EXPECT_EQ(library_->num_prepared(), 2);
  }
}

}  // namespace
}  // namespace sluice::cuda_testing
