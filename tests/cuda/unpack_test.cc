// What stands around a library's products: plain weights out of packed ones, and the end of a product.
#include "engine/ops/cuda/kernels/unpack.h"

#include <gtest/gtest.h>

#include "engine/base/float16.h"
#include "engine/ops/cuda/kernels/finish_product.h"
#include "engine/ops/reference/reference_math.h"
#include "tests/cuda/gemm_harness.h"
#include "tests/cuda/values.h"

namespace sluice::cuda_testing {
namespace {

class UnpackTest : public testing::TestWithParam<TensorType> {};

TEST_P(UnpackTest, GivesEveryWeightRoundedToBf16) {
  std::mt19937 random(5);
  struct Shape {
    int32_t n, about_k;
    bool gated;
  };
  for (const auto& [n, about_k, gated] :
       {Shape{1, 8, false}, Shape{16, 64, false}, Shape{37, 600, false}, Shape{40, 256, true}, Shape{48, 520, true}}) {
    const int32_t k = KOf(GetParam(), about_k);
    SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "]" << (gated ? " gated" : ""));
    const Weights weights(GetParam(), n, k, gated, 1, random);
    DeviceArray<uint16_t> plain(static_cast<size_t>(n) * k);
    cuda::LaunchUnpack(weights.matrix(), plain.data(), nullptr);
    const std::vector<uint16_t> got = plain.Read();
    for (int32_t row = 0; row < n; ++row) {
      for (int32_t column = 0; column < k; ++column) {
        ASSERT_EQ(got[static_cast<size_t>(row) * k + column], FloatToBf16(float(weights.value(0, row, column))))
            << "row " << row << " column " << column;
      }
    }
  }
}

// f32 stays with our kernels.
std::vector<TensorType> TypesWithTiles() {
  std::vector<TensorType> types = GpuTypes();
  std::erase(types, TensorType::kF32);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Formats, UnpackTest, testing::ValuesIn(TypesWithTiles()));

TEST(Unpack, OfNothing) { cuda::LaunchUnpack({}, nullptr, nullptr); }

struct Ending {
  cuda::Epilogue epilogue;
  ActivationKind activation;
  bool activate, bias;
  cuda::Element out;
};

TEST(FinishProduct, AddsTheBiasAndEndsAsProductsDo) {
  using cuda::Element;
  using cuda::Epilogue;
  std::mt19937 random(6);
  const int32_t m = 3;
  for (const Ending& e : {Ending{Epilogue::kStore, ActivationKind::kSilu, false, true, Element::kF32},
                          Ending{Epilogue::kStore, ActivationKind::kGeluTanh, true, true, Element::kBF16},
                          Ending{Epilogue::kStore, ActivationKind::kGeluErf, true, false, Element::kBF16},
                          Ending{Epilogue::kGated, ActivationKind::kSilu, false, false, Element::kBF16},
                          Ending{Epilogue::kGated, ActivationKind::kGeluTanh, false, true, Element::kBF16},
                          Ending{Epilogue::kGated, ActivationKind::kSwigluOai, false, true, Element::kBF16}}) {
    for (const int32_t n : {8, 24, 1032}) {
      const bool gated = e.epilogue == Epilogue::kGated;
      const int32_t width = gated ? n / 2 : n;
      Matrix y(Element::kF32, m, n, n + 4, &random), out(e.out, m, width, width + 4);
      const std::vector<float> bias = Normal(static_cast<size_t>(n), 9);
      const DeviceArray<float> device_bias(bias);
      cuda::GemmArgs gemm;
      gemm.m = m, gemm.w.n = n, gemm.w.k = 8;
      gemm.bias = e.bias ? device_bias.data() : nullptr;
      gemm.epilogue = e.epilogue, gemm.activation = e.activation, gemm.activate = e.activate;
      gemm.alpha = 1.5f, gemm.limit = 1.0f;
      gemm.out = out.data(), gemm.out_element = e.out, gemm.out_stride = width + 4;
      cuda::LaunchFinishProduct(gemm, static_cast<float*>(y.data()), n + 4, nullptr);
      out.Download();
      EXPECT_TRUE(out.PaddingIsNan());
      ErrorMeter meter;
      for (int32_t row = 0; row < m; ++row) {
        const auto sum = [&](int32_t i) { return double{y(row, i)} + (e.bias ? bias[static_cast<size_t>(i)] : 0.0f); };
        for (int32_t i = 0; i < width; ++i) {
          const double want =
              gated        ? reference::ActivateGated(e.activation, gemm.alpha, gemm.limit, sum(i), sum(width + i))
              : e.activate ? reference::Activate(e.activation, sum(i))
                           : sum(i);
          meter.Compare(out(row, i), want);
        }
      }
      EXPECT_LE(meter.error(), Tolerance(e.out)) << "n " << n;
    }
  }
}

TEST(FinishProduct, AddsTheBiasInPlace) {
  std::mt19937 random(7);
  Matrix y(cuda::Element::kF32, 5, 520, 520, &random);
  const std::vector<uint32_t> before = y.Row(4);
  const std::vector<float> bias = Normal(520, 3);
  const DeviceArray<float> device_bias(bias);
  cuda::GemmArgs gemm;
  gemm.m = 5, gemm.w.n = 520, gemm.bias = device_bias.data(), gemm.epilogue = cuda::Epilogue::kAccumulate;
  gemm.out = y.data(), gemm.out_stride = 520;
  const float want = y(4, 519) + bias[519];
  cuda::LaunchFinishProduct(gemm, static_cast<float*>(y.data()), 520, nullptr);
  y.Download();
  EXPECT_EQ(y(4, 519), want);
  gemm.m = 0;
  cuda::LaunchFinishProduct(gemm, nullptr, 520, nullptr);
}

}  // namespace
}  // namespace sluice::cuda_testing
