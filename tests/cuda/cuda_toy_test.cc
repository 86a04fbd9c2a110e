// Models of every kind of attention and feed-forward on the GPU (emulated here), fed the tokens that the CPU chose in
// f32: in f32 the same token everywhere, in bf16 wherever the CPU's best two are not too close.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <utility>

#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/cuda/cuda_ops.h"
#include "engine/runtime/runner.h"
#include "tests/cuda/test_device.h"
#include "tests/cuda/toy_cases.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

// Of the largest |logit|. A best token is clear if it is ahead by four times as much.
constexpr float kBf16Tolerance = 5e-3f;
// What the layers together may add up to, where a router has not chosen another expert.
constexpr float kBf16LogitTolerance = 3 * kBf16Tolerance;
// Rows whose router has. Two experts may be closer to each other than bf16 tells, and which of them a GPU takes depends
// on the last bits of its sums; a row with another expert has other logits, by a tenth of the largest or so, and
// perhaps another best token. Later rows see little of it.
constexpr int kMaxRerouted = 4;
constexpr double kClearShare = 0.8;  // of all rows, at least
constexpr int32_t kMaxTokens = 64;
constexpr int32_t kMaxSeqs = 16;  // and rows of logits at a time
constexpr int32_t kPromptLen = 40;

std::unique_ptr<Runner> NewRunner(const ToyModel& model, std::unique_ptr<Ops> ops, KvDType kv_dtype) {
  absl::StatusOr<ModelWeights> weights = LoadWeights(model.spec, ToyTensorNames(), model.tensors, "toy", ops.get());
  EXPECT_TRUE(weights.ok()) << weights.status();
  RunnerOptions options;
  options.num_blocks = 64;
  options.kv_dtype = kv_dtype;
  options.max_model_len = kMaxTokens;
  options.max_num_seqs = kMaxSeqs;
  options.max_num_batched_tokens = kMaxTokens;
  return Runner::Create(std::move(ops), model.spec, *std::move(weights), options).value();
}

std::unique_ptr<Runner> NewCudaRunner(const ToyModel& model, cuda::Element element, int64_t* num_replays = nullptr) {
  CudaOpsOptions options;
  options.activations = element;
  return NewRunner(model, NewCudaOps(cuda_testing::NewTestDevice(num_replays).value(), options).value(),
                   element == cuda::Element::kF32 ? KvDType::kF32 : KvDType::kBF16);
}

// Of the largest |logit|.
float Difference(const std::vector<float>& got, const std::vector<float>& want, float largest) {
  float worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const float difference = std::abs(got[i] - want[i]) / largest;
    if (std::isnan(difference)) return INFINITY;
    worst = std::max(worst, difference);
  }
  return worst;
}

size_t BestToken(const std::vector<float>& logits) {
  return size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float Margin(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return logits[0] - logits[1];
}

class CudaToy : public ::testing::TestWithParam<ToyCase> {
 protected:
  void SetUp() override {
    CpuOpsOptions cpu;
    cpu.num_threads = 2;
    cpu.activations = ActivationType::kF32;
    const auto runner = NewRunner(model_, NewCpuOps(cpu).value(), KvDType::kF32);
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < kPromptLen; ++i) prompt.push_back((i * 37 + 11) % model_.spec.vocab_size);
    StepDriver driver(runner.get());
    TestSequence* sequence = driver.Add(prompt);
    driver.Generate(sequence, kMaxTokens, kMaxTokens - kPromptLen);
    tokens_ = sequence->tokens;
    want_ = driver.AllLogits(tokens_);
    for (const std::vector<float>& row : want_) {
      for (const float logit : row) largest_ = std::max(largest_, std::abs(logit));
    }
  }

  const ToyModel model_ = MakeToyModel(MakeToySpec(GetParam()), GetParam().weights, GetParam().seed);
  std::vector<int32_t> tokens_;
  std::vector<std::vector<float>> want_;
  float largest_ = 0;
};

TEST_P(CudaToy, EveryTokenInF32) {
  int64_t num_replays = 0;
  const auto runner = NewCudaRunner(model_, cuda::Element::kF32, &num_replays);
  const auto got = StepDriver(runner.get()).AllLogits(tokens_);
  ASSERT_EQ(got.size(), want_.size());
  for (size_t row = 0; row < got.size(); ++row) EXPECT_EQ(BestToken(got[row]), BestToken(want_[row])) << row;
  // And as a server would: token by token, through recorded steps.
  StepDriver driver(runner.get());
  TestSequence* sequence = driver.Add({tokens_.begin(), tokens_.begin() + kPromptLen});
  driver.Generate(sequence, 7, kMaxTokens - kPromptLen);
  EXPECT_EQ(sequence->tokens, tokens_);
  // All but the step that draws the first token.
  if (num_replays >= 0) {
    EXPECT_GE(num_replays, kMaxTokens - kPromptLen - 1);
  }
}

TEST_P(CudaToy, EveryClearTokenInBf16) {
  const auto runner = NewCudaRunner(model_, cuda::Element::kBF16);
  const auto got = StepDriver(runner.get()).AllLogits(tokens_);
  ASSERT_EQ(got.size(), want_.size());
  const bool routed = std::any_of(model_.spec.layers.begin(), model_.spec.layers.end(),
                                  [](const LayerSpec& layer) { return std::holds_alternative<MoeFfn>(layer.ffn); });
  float worst = 0;
  size_t num_clear = 0;
  int num_rerouted = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    const float difference = Difference(got[row], want_[row], largest_);
    worst = std::max(worst, difference);
    const bool rerouted = routed && difference > kBf16LogitTolerance;
    num_rerouted += rerouted;
    if (!(Margin(want_[row]) > 4 * kBf16Tolerance * largest_)) continue;
    ++num_clear;
    EXPECT_TRUE(rerouted || BestToken(got[row]) == BestToken(want_[row])) << row;
  }
  std::cout << GetParam().name << ": logits within " << worst << ", clear " << num_clear << " of " << got.size() << ", "
            << num_rerouted << " rerouted" << std::endl;
  EXPECT_LE(num_rerouted, kMaxRerouted);
  EXPECT_LE(worst, routed ? 1 : kBf16LogitTolerance);
  EXPECT_GE(double(num_clear), kClearShare * double(got.size()));
}

INSTANTIATE_TEST_SUITE_P(All, CudaToy, ::testing::ValuesIn(ToyCases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice::testing
