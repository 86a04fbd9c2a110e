// Rows of packed tables in every format.
#include "engine/ops/cuda/kernels/embed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/gemm_harness.h"
#include "tests/cuda/values.h"

namespace sluice::cuda_testing {
namespace {

class EmbedTest : public testing::TestWithParam<TensorType> {};

TEST_P(EmbedTest, GivesTheValuesOfTheRows) {
  std::mt19937 random(3);
  for (int32_t about : {8, 256, 600}) {
    const int32_t vocab = 37, d = KOf(GetParam(), about);
    const Weights table(GetParam(), vocab, d, false, 1, random);
    const std::vector<int32_t> ids = {0, 36, 17, 8, 8};
    DeviceArray<int32_t> device_ids(ids);
    DeviceArray<float> x(ids.size() * size_t(d));
    cuda::EmbedArgs args = {.num_rows = 5, .ids = device_ids.data(), .table = table.matrix(), .x = x.data()};
    for (bool accumulate : {false, true}) {
      args.scale = accumulate ? 1.0f : 0.25f;
      args.accumulate = accumulate;
      cuda::LaunchEmbed(args, nullptr);
      const std::vector<float> got = x.Read();
      for (size_t i = 0; i < got.size(); ++i) {
        const float value = float(table.value(0, ids[i / size_t(d)], int32_t(i % size_t(d))));
        ASSERT_EQ(got[i], accumulate ? value * 0.25f + value : value * 0.25f)
            << "row " << i / size_t(d) << " column " << i % size_t(d);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EmbedTest, testing::ValuesIn(GpuTypes()));

TEST(Embed, AnIdOutsideTheTableGivesNan) {
  std::mt19937 random(3);
  const Weights table(TensorType::kBF16, 10, 16, false, 1, random);
  DeviceArray<int32_t> ids(std::vector<int32_t>{-1, 3, 10, INT32_MAX});
  DeviceArray<float> x(4 * 16);
  cuda::LaunchEmbed({.num_rows = 4, .ids = ids.data(), .table = table.matrix(), .x = x.data()}, nullptr);
  const std::vector<float> got = x.Read();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 16 != 1);
  cuda::LaunchEmbed({.table = table.matrix()}, nullptr);
}

}  // namespace
}  // namespace sluice::cuda_testing
