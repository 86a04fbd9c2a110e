// Norms through the operations, on a row whose results can be had by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

constexpr int kWidth = 4;
const std::vector<float> kRow = {1.2f, -0.8f, 0.5f, -1.5f};

StoredTensor TensorOf(const std::vector<float>& values, int64_t rows) {
  StoredTensor tensor;
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  tensor.view = {"norm", TensorType::kF32, {rows, kWidth}, absl::MakeConstSpan(tensor.bytes)};
  return tensor;
}

class NormOpsTest : public testing::TestWithParam<bool> {
 protected:
  // kRow, normed, as the query of a head that leaves it as it is.
  std::vector<float> Norm(const NormParams& params, const std::vector<float>& weight, const std::vector<float>& bias) {
    std::vector<float> identity(kWidth * kWidth, 0);
    for (int i = 0; i < kWidth; ++i) identity[static_cast<size_t>(i * (kWidth + 1))] = 1;
    const StoredTensor eye = TensorOf(identity, kWidth), embedding = TensorOf(kRow, 1);
    const auto table = ops_->LoadLinear(std::vector{embedding.view}, LinearLayout::kStacked).value();
    const auto qkv = ops_->LoadLinear(std::vector{eye.view, eye.view, eye.view}, LinearLayout::kStacked).value();
    const auto weights = ops_->LoadVector(weight).value(), biases = ops_->LoadVector(bias).value();
    const auto x = ops_->NewActivations(16, kWidth, ActivationsUse::kResidual).value();
    const auto q = ops_->NewActivations(16, kWidth, ActivationsUse::kQuery).value();
    const auto kv = ops_->NewKvCache({{{1, kWidth, kWidth}}, 1, 16, KvDType::kF32}).value();
    QkvArgs args;
    args.x = x.get(), args.qkv = qkv.get(), args.heads = {1, 1, kWidth, kWidth}, args.kv = kv.get(), args.q = q.get();
    args.norm = NormArgs{params, weights.get(), params.kind == NormKind::kLayer ? biases.get() : nullptr};
    const std::vector<int32_t> zero = {0}, one = {1}, starts = {0, 1};
    const std::vector<KvGroupView> groups = {{zero, zero, 1}};
    ops_->BeginStep({zero, zero, starts, one, groups, {}, {}, {}});
    ops_->Embed(*table, 1, x.get());
    ops_->Qkv(args);
    std::vector<float> row(kWidth);
    EXPECT_TRUE(ops_->CopyActivations(*q, 0, row).ok());
    return row;
  }

  void ExpectNorm(const NormParams& params, const std::vector<float>& weight, const std::vector<double>& want) {
    const std::vector<float> got = Norm(params, weight, {0.1f, 0.2f, 0.3f, 0.4f});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  }

  std::unique_ptr<Ops> ops_ = GetParam() ? NewCpuOps({1, {}, ActivationType::kF32}).value() : NewReferenceOps();
};
INSTANTIATE_TEST_SUITE_P(All, NormOpsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

// The squares 1.44, 0.64, 0.25 and 2.25 have the mean 1.145, whose root is 1.0700467.
TEST_P(NormOpsTest, RmsNormDividesByTheRootOfTheMeanSquare) {
  const std::vector<double> normed = {1.1214464, -0.7476309, 0.4672693, -1.4018080};
  ExpectNorm({.kind = NormKind::kRms, .eps = 1e-12f}, {1, 1, 1, 1}, normed);
  ExpectNorm({.kind = NormKind::kRms, .eps = 1e-12f}, {2, 1, 0, -1}, {2 * normed[0], normed[1], 0, -normed[3]});
  // The file's weight is one less than what is meant.
  ExpectNorm({.kind = NormKind::kRms, .eps = 1e-12f, .weight_offset = 1}, {0, 0, 0, 0}, normed);
  // With an eps of 0.105 the mean under the root is 1.25.
  ExpectNorm({.kind = NormKind::kRms, .eps = 0.105f}, {1, 1, 1, 1}, {1.0733126, -0.7155418, 0.4472136, -1.3416408});
}

// The mean is -0.15, the deviations 1.35, -0.65, 0.65 and -1.35 have the mean square 1.1225, whose root is 1.0594810.
TEST_P(NormOpsTest, LayerNormTakesTheMeanAwayFirst) {
  const double large = 1.2742088, small = 0.6135079;
  ExpectNorm({.kind = NormKind::kLayer, .eps = 1e-12f}, {1, 1, 1, 1},
             {large + 0.1, -small + 0.2, small + 0.3, -large + 0.4});
}

}  // namespace
}  // namespace sluice
