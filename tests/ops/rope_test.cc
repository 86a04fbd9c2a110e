// Rotary embedding through the operations: what a pair turns by, which dimensions make a pair, and which frequencies a
// sequence gets.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

void ExpectRelative(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i] / want[i], 1, tolerance) << "pair " << i;
}

// The frequencies in these two tests are those of transformers 5.24.0; f32 has steps of 6e-8 to 1.2e-7.
TEST(RopeLengthTest, DynamicNtkGrowsTheBaseBeyondTheTrainedLength) {
  RopeTable table;
  table.inv_freq = {1.f, 0.316227764f, 0.1f, 0.0316227786f, 0.00999999978f, 0.00316227786f, 0.001f, 0.000316227786f};
  table.length_rule = DynamicNtkRule{1e4f, 2, 32};
  std::vector<float> got;
  for (const int32_t length : {1, 32}) {
    SelectInvFreq(table, length, &got);
    EXPECT_EQ(got, table.inv_freq);
  }
  SelectInvFreq(table, 33, &got);
  ExpectRelative(got,
                 {1.f, 0.313500851f, 0.0982827842f, 0.0308117364f, 0.00965950545f, 0.00302826311f, 0.000949363108f,
                  0.000297626131f},
                 1e-9);
  SelectInvFreq(table, 77, &got);
  ExpectRelative(
      got,
      {1.f, 0.261198103f, 0.068224445f, 0.0178200975f, 0.0046545756f, 0.0012157663f, 0.000317555823f, 8.29449782e-05f},
      1e-9);
  table.inv_freq.resize(6);
  table.length_rule = DynamicNtkRule{5e5f, 4, 64};
  SelectInvFreq(table, 200, &got);
  ExpectRelative(got, {1.f, 0.0715528503f, 0.00511980942f, 0.000366337015f, 2.62124522e-05f, 1.8755768e-06f}, 1.3e-7);
}

TEST(RopeLengthTest, LongRopeSwitchesTheWholeListAboveTheOriginalLength) {
  RopeTable table;
  table.inv_freq = {1.f, 0.195857689f, 0.0386799015f};
  table.length_rule = LongRopeRule{64, {0.666666687f, 0.107721724f, 0.0154719604f}};
  std::vector<float> got;
  SelectInvFreq(table, 64, &got);
  EXPECT_EQ(got, table.inv_freq);
  SelectInvFreq(table, 65, &got);
  EXPECT_EQ(got, std::get<LongRopeRule>(table.length_rule).long_inv_freq);
}

constexpr int kHeadDim = 8;

StoredTensor TensorOf(const std::vector<float>& values, int64_t rows, int64_t cols) {
  StoredTensor tensor;
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  tensor.view = {"rope", TensorType::kF32, {rows, cols}, absl::MakeConstSpan(tensor.bytes)};
  return tensor;
}

// One head whose query is the vector `x`, turned.
class OneHead {
 public:
  OneHead(Ops* ops, const std::vector<float>& x, const RopeTable& table, RopeLayout layout) : ops_(ops) {
    std::vector<float> identity(kHeadDim * kHeadDim, 0);
    for (int i = 0; i < kHeadDim; ++i) identity[static_cast<size_t>(i * (kHeadDim + 1))] = 1;
    const StoredTensor eye = TensorOf(identity, kHeadDim, kHeadDim), embedding = TensorOf(x, 1, kHeadDim);
    embedding_ = ops->LoadLinear(std::vector{embedding.view}, LinearLayout::kStacked).value();
    qkv_ = ops->LoadLinear(std::vector{eye.view, eye.view, eye.view}, LinearLayout::kStacked).value();
    rope_ = ops->LoadRope(table, 4096).value();
    x_ = ops->NewActivations(16, kHeadDim, ActivationsUse::kResidual).value();
    q_ = ops->NewActivations(16, kHeadDim, ActivationsUse::kQuery).value();
    kv_ = ops->NewKvCache({{{1, kHeadDim, kHeadDim}}, 1, 16, KvDType::kF32}).value();
    args_.x = x_.get(), args_.qkv = qkv_.get(), args_.heads = {1, 1, kHeadDim, kHeadDim};
    args_.rope = RopeArgs{rope_.get(), layout, 2 * static_cast<int>(table.inv_freq.size())};
    args_.kv = kv_.get(), args_.q = q_.get();
  }

  // One row per sequence.
  std::vector<std::vector<float>> Turn(const std::vector<int32_t>& positions,
                                       const std::vector<int32_t>& lengths = {}) {
    const size_t n = positions.size();
    std::vector<int32_t> tokens(n, 0), starts(n + 1), slots(n), contexts(n, 1), tables(n, 0);
    std::iota(starts.begin(), starts.end(), 0);
    std::iota(slots.begin(), slots.end(), 0);
    const std::vector<KvGroupView> groups = {{slots, tables, 1}};
    ops_->BeginStep({tokens, positions, starts, contexts, groups, {}, {}, lengths});
    ops_->Embed(*embedding_, 1, x_.get());
    ops_->Qkv(args_);
    std::vector<std::vector<float>> rows(n, std::vector<float>(kHeadDim));
    for (size_t i = 0; i < n; ++i) EXPECT_TRUE(ops_->CopyActivations(*q_, static_cast<int64_t>(i), rows[i]).ok());
    return rows;
  }

 private:
  Ops* const ops_;
  std::unique_ptr<LinearWeights> embedding_, qkv_;
  std::unique_ptr<RopeTableData> rope_;
  std::unique_ptr<Activations> x_, q_;
  std::unique_ptr<KvCache> kv_;
  QkvArgs args_;
};

class RopeOpsTest : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Ops> ops_ = GetParam() ? NewCpuOps({1, {}, ActivationType::kF32}).value() : NewReferenceOps();
};
INSTANTIATE_TEST_SUITE_P(All, RopeOpsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

// Base 10000 and 8 dimensions give pairs that turn by 1, 0.1, 0.01 and 0.001 radians per position.
TEST_P(RopeOpsTest, PairsTurnByTheirFrequencyPerPosition) {
  const RopeTable table{{1, 0.1f, 0.01f, 0.001f}, 1, {}};
  OneHead interleaved(ops_.get(), {1, 0, 1, 0, 1, 0, 1, 0}, table, RopeLayout::kInterleaved);
  OneHead half_split(ops_.get(), {1, 1, 1, 1, 0, 0, 0, 0}, table, RopeLayout::kHalfSplit);
  ExpectNear(interleaved.Turn({0})[0], {1, 0, 1, 0, 1, 0, 1, 0});
  ExpectNear(interleaved.Turn({1})[0],
             {0.5403023, 0.8414710, 0.9950042, 0.0998334, 0.9999500, 0.0099998, 0.9999995, 0.0010000});
  ExpectNear(half_split.Turn({1})[0],
             {0.5403023, 0.9950042, 0.9999500, 0.9999995, 0.8414710, 0.0998334, 0.0099998, 0.0010000});
  ExpectNear(interleaved.Turn({3})[0],
             {-0.9899925, 0.1411200, 0.9553365, 0.2955202, 0.9995500, 0.0299955, 0.9999955, 0.0030000});
}

TEST_P(RopeOpsTest, ScoresDependOnTheDistanceOnly) {
  const RopeTable table{{1, 0.1f, 0.01f, 0.001f}, 1, {}};
  const std::vector<float> x = {0.3f, -1.2f, 0.7f, 0.1f, -0.5f, 2, 0.9f, -0.4f};
  for (const RopeLayout layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
    OneHead head(ops_.get(), x, table, layout);
    const auto score = [&](int m, int n) {
      const auto rows = head.Turn({m, n});
      return std::inner_product(rows[0].begin(), rows[0].end(), rows[1].begin(), 0.0);
    };
    EXPECT_NEAR(score(5, 2), score(205, 202), 1e-4);
    EXPECT_NEAR(score(7, 7), score(0, 0), 1e-5);
    EXPECT_GT(std::abs(score(5, 2) - score(5, 1)), 1e-2);
  }
}

TEST_P(RopeOpsTest, OnlyTheFirstDimensionsTurnAndTheFactorMultiplies) {
  const RopeTable table{{1, 0.1f}, 2, {}};
  OneHead interleaved(ops_.get(), {1, 0, 1, 0, 5, 6, 7, 8}, table, RopeLayout::kInterleaved);
  OneHead half_split(ops_.get(), {1, 1, 0, 0, 5, 6, 7, 8}, table, RopeLayout::kHalfSplit);
  ExpectNear(interleaved.Turn({1})[0], {1.0806046, 1.6829420, 1.9900083, 0.1996668, 5, 6, 7, 8});
  ExpectNear(half_split.Turn({1})[0], {1.0806046, 1.9900083, 1.6829420, 0.1996668, 5, 6, 7, 8});
}

// Each sequence turns by its own length, whoever is beside it and wherever it stands in the step.
TEST_P(RopeOpsTest, EachSequenceTurnsByItsOwnLength) {
  const std::vector<float> x = {1, 1, 1, 1, 0, 0, 0, 0};
  const auto turned = [](double f0, double f1, double f2, double f3, double position) {
    std::vector<double> y;
    for (double f : {f0, f1, f2, f3}) y.push_back(std::cos(f * position));
    for (double f : {f0, f1, f2, f3}) y.push_back(std::sin(f * position));
    return y;
  };
  const RopeTable longrope{{1, 0.1f, 0.01f, 0.001f}, 1, LongRopeRule{64, {0.5f, 0.05f, 0.005f, 0.0005f}}};
  OneHead head(ops_.get(), x, longrope, RopeLayout::kHalfSplit);
  const std::vector<double> is_short = turned(1, 0.1, 0.01, 0.001, 9), is_long = turned(0.5, 0.05, 0.005, 0.0005, 9);
  auto rows = head.Turn({9, 9, 9}, {64, 65, 10});
  ExpectNear(rows[0], is_short);
  ExpectNear(rows[1], is_long);
  ExpectNear(rows[2], is_short);
  rows = head.Turn({9, 9}, {65, 64});
  ExpectNear(rows[0], is_long);
  ExpectNear(rows[1], is_short);

  // base = 1e4 * (2 * L / 32 - 1) ^ (8 / 6)
  const RopeTable dynamic{{1, 0.1f, 0.01f, 0.001f}, 1, DynamicNtkRule{1e4f, 2, 32}};
  OneHead other(ops_.get(), x, dynamic, RopeLayout::kHalfSplit);
  const auto at = [&](double length) {
    const double base = 1e4 * std::pow(2 * length / 32 - 1, 8.0 / 6);
    return turned(1, std::pow(base, -0.25), std::pow(base, -0.5), std::pow(base, -0.75), 9);
  };
  rows = other.Turn({9, 9, 9, 9, 9, 9}, {100, 32, 64, 7, 100, 4000});
  ExpectNear(rows[0], at(100));
  ExpectNear(rows[1], at(32));
  ExpectNear(rows[2], at(64));
  ExpectNear(rows[3], at(32));
  EXPECT_EQ(rows[4], rows[0]);
  ExpectNear(rows[5], at(4000));
}

}  // namespace
}  // namespace sluice
