// Whole models on the emulated GPU, from their files to tokens: in f32 the logits that transformers computed; in bf16
// the same best token wherever the best two are not too close; and bit for bit the same however steps are cut and
// shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <utility>

#include "engine/model/kv_groups.h"
#include "engine/model/model_loader.h"
#include "engine/ops/cuda/cuda_ops.h"
#include "engine/runtime/runner.h"
#include "tests/cuda/test_device.h"
#include "tests/model/golden_model.h"
#include "tests/model/step_driver.h"

namespace sluice::testing {
namespace {

constexpr float kF32Tolerance = 1e-4f;  // of the largest |logit|
constexpr int32_t kMaxTokens = 96;
constexpr int32_t kCompared = 64;  // tokens of each golden sequence: emulated kernels are slow
constexpr int32_t kExpandFrom = 20;

absl::StatusOr<std::unique_ptr<Runner>> Load(const std::string& folder, cuda::Element element,
                                             int32_t mla_expand_from) {
  absl::StatusOr<LoadedModel> model = LoadModel(folder);
  if (!model.ok()) return model.status();
  CudaOpsOptions cuda;
  cuda.activations = element;
  absl::StatusOr<std::unique_ptr<Ops>> ops = NewCudaOps(cuda_testing::NewTestDevice().value(), cuda);
  if (!ops.ok()) return ops.status();
  absl::StatusOr<ModelWeights> weights = LoadWeights(*model, ops->get());
  if (!weights.ok()) return weights.status();
  RunnerOptions options;
  options.block_size = 16;
  options.num_blocks = 1024;
  options.kv_dtype = element == cuda::Element::kF32 ? KvDType::kF32 : KvDType::kBF16;
  options.max_model_len = model->spec.position_embedding == PositionEmbedding::kLearned
                              ? std::min(kMaxTokens, model->spec.max_position)
                              : kMaxTokens;
  options.max_num_seqs = 32;  // and a little more than the company of the last test
  options.max_num_batched_tokens = kMaxTokens;
  options.numerics.mla_expand_from = mla_expand_from;
  return Runner::Create(*std::move(ops), model->spec, *std::move(weights), options);
}

class CudaGolden : public ::testing::TestWithParam<std::string> {
 protected:
  // Nothing if the GPU does not take the model, which it then says.
  std::unique_ptr<Runner> LoadOrRefuse(cuda::Element element, int32_t mla_expand_from = INT32_MAX) {
    golden_ = ReadGolden(GetParam());
    for (GoldenSequence& sequence : golden_.sequences) {
      sequence.tokens.resize(std::min<size_t>(sequence.tokens.size(), kCompared));
      sequence.logits.resize(sequence.tokens.size());
    }
    absl::StatusOr<std::unique_ptr<Runner>> runner = Load(golden_.folder, element, mla_expand_from);
    if (runner.ok()) return *std::move(runner);
    EXPECT_EQ(runner.status().code(), absl::StatusCode::kUnimplemented) << runner.status();
    EXPECT_THAT(runner.status().message(), ::testing::HasSubstr("on a GPU"));
    std::cout << "refused: " << runner.status().message() << std::endl;
    return nullptr;
  }

  bool HasLatentAttention() const {
    const absl::StatusOr<LoadedModel> model = LoadModel(ReadGolden(GetParam()).folder);
    return model.ok() && std::holds_alternative<Mla>(model->spec.layers[0].attention.kind);
  }

  void ExpectLogitsOfTheReference(int32_t mla_expand_from);
  void ExpectTheSameBits(int32_t mla_expand_from);

  GoldenModel golden_;
};

void CudaGolden::ExpectLogitsOfTheReference(int32_t mla_expand_from) {
  const std::unique_ptr<Runner> runner = LoadOrRefuse(cuda::Element::kF32, mla_expand_from);
  if (runner == nullptr) return;
  StepDriver driver(runner.get());
  float worst = 0;
  for (const GoldenSequence& sequence : golden_.sequences) {
    const auto logits = driver.AllLogits(sequence.tokens);
    ASSERT_EQ(logits.size(), sequence.logits.size());
    for (size_t row = 0; row < logits.size(); ++row) {
      const float here = LargestDifference(logits[row], sequence.logits[row]) / golden_.max_abs;
      ASSERT_LE(here, kF32Tolerance) << "row " << row;
      worst = std::max(worst, here);
    }
  }
  std::cout << "golden " << GetParam() << " f32 " << worst << std::endl;
}

void CudaGolden::ExpectTheSameBits(int32_t mla_expand_from) {
  const std::unique_ptr<Runner> runner = LoadOrRefuse(cuda::Element::kBF16, mla_expand_from);
  if (runner == nullptr) return;
  const std::vector<int32_t>& all = golden_.sequences[0].tokens;
  const std::vector<int32_t> prompt(all.begin(), all.begin() + 20);
  constexpr int32_t kNew = 12;
  SamplingParams params = Greedy();
  params.temperature = 0.9f;  // drawn: a difference in any logit can show
  params.seed = 5;
  StepDriver alone_driver(runner.get(), 1);
  TestSequence* alone = alone_driver.Add(prompt, params);
  alone_driver.Generate(alone, kMaxTokens, kNew);

  // Joined by one more stranger in each step: batches of 1 to 20 and more.
  StepDriver driver(runner.get(), 2);
  TestSequence* sequence = driver.Add(prompt, params);
  std::vector<TestSequence*> strangers;
  while (std::ssize(sequence->tokens) < std::ssize(prompt) + kNew) {
    std::vector<StepDriver::Part> parts;
    for (TestSequence* stranger : strangers) {
      parts.push_back({stranger, int32_t(stranger->tokens.size()) - stranger->num_computed});
    }
    parts.push_back({sequence, std::min(int32_t(sequence->tokens.size()) - sequence->num_computed, 7)});
    for (int i = 0; i < 2; ++i) {
      const auto first = all.begin() + std::ssize(strangers) % 8;
      strangers.push_back(driver.Add(std::vector<int32_t>(first, first + 3), params));
    }
    driver.Step(parts);
  }
  EXPECT_EQ(sequence->tokens, alone->tokens);
  ASSERT_EQ(sequence->logprobs.size(), alone->logprobs.size());
  for (size_t i = 0; i < alone->logprobs.size(); ++i) {
    EXPECT_EQ(sequence->logprobs[i].chosen.logprob, alone->logprobs[i].chosen.logprob) << i;
  }
}

TEST_P(CudaGolden, LogitsOfTheReferenceInF32) { ExpectLogitsOfTheReference(INT32_MAX); }

TEST_P(CudaGolden, LogitsOfTheExpandedFormInF32) {
  if (HasLatentAttention()) ExpectLogitsOfTheReference(kExpandFrom);
}

TEST_P(CudaGolden, TheSameBitsAloneInPiecesAndInCompany) { ExpectTheSameBits(INT32_MAX); }

TEST_P(CudaGolden, TheSameBitsOfTheExpandedForm) {
  if (HasLatentAttention()) ExpectTheSameBits(kExpandFrom);
}

INSTANTIATE_TEST_SUITE_P(All, CudaGolden, ::testing::ValuesIn(GoldenNames()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-'; }, '_');
  return name;
});

}  // namespace
}  // namespace sluice::testing
