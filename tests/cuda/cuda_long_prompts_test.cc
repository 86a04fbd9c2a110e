// Models whose long prompts take products of the library (engine/ops/cuda/gemm_route.h): their rows have the same bits
// alone, in pieces, in company and after a preemption; they agree with our own kernels; and what is not of a long
// prompt is not touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "engine/ops/cuda/cuda_ops.h"
#include "engine/runtime/runner.h"
#include "tests/cuda/test_device.h"
#include "tests/gpu/library.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

constexpr int32_t kFrom = 20, kMaxTokens = 64;
constexpr float kTolerance = 1.5e-2f;  // of the largest |logit|, as between the CPU and a GPU

struct Case {
  const char* name;
  std::function<void(ModelSpec*)> change;
  TensorType weights = TensorType::kBF16;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

void ForLayers(ModelSpec* spec, const std::function<void(LayerSpec*)>& change) {
  for (LayerSpec& layer : spec->layers) change(&layer);
}

void UseMla(ModelSpec* spec) {
  ForLayers(spec, [](LayerSpec* layer) {
    layer->attention.kind = Mla{.num_heads = 4,
                                .q_lora_rank = 24,
                                .kv_lora_rank = 32,
                                .qk_nope_head_dim = 16,
                                .qk_rope_head_dim = 16,
                                .v_head_dim = 16};
    layer->attention.rope->layout = RopeLayout::kInterleaved;
  });
}

void UseMoe(ModelSpec* spec) {
  ForLayers(spec, [](LayerSpec* layer) {
    MoeFfn moe;
    moe.routing.num_experts = 4;
    moe.routing.num_experts_per_token = 4;  // all of them, so that small differences stay small
    moe.routing.renormalize = true;
    moe.expert_intermediate_size = 48;
    moe.shared_intermediate_size = 48;
    layer->ffn = moe;
  });
}

const Case kCases[] = {
    {"Dense", [](ModelSpec*) {}},
    {"BiasesAndPostNorms",
     [](ModelSpec* s) {
       ForLayers(s, [](LayerSpec* l) {
         l->attention.q_bias = l->attention.k_bias = l->attention.v_bias = l->attention.o_bias = true;
         l->post_ffn = NormParams{.eps = 1e-5f};
       });
     }},
    {"Ungated",
     [](ModelSpec* s) {
       ForLayers(s, [](LayerSpec* l) {
         l->ffn = DenseFfn{.intermediate_size = 128, .gated = false, .activation = {.kind = ActivationKind::kGeluTanh}};
       });
     }},
    {"MlaAndMoe",
     [](ModelSpec* s) {
       UseMla(s);
       UseMoe(s);
     }},
    {"WeightsQ4_0", [](ModelSpec*) {}, TensorType::kQ4_0},
    {"WeightsF16", [](ModelSpec*) {}, TensorType::kF16},
};

std::vector<int32_t> Prompt(int32_t length, int32_t seed) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back((i * 37 + seed * 11 + i / 3) % 32);
  return prompt;
}

// Says how much goes through a library.
class CountedLibrary : public GemmLibrary {
 public:
  explicit CountedLibrary(std::unique_ptr<GemmLibrary> library) : library_(std::move(library)) {}
  std::string Description() const override { return library_->Description(); }
  absl::Status Prepare(int32_t n, int32_t k) override { return library_->Prepare(n, k); }
  int64_t num_prepared() const override { return library_->num_prepared(); }
  absl::Status Multiply(const LibraryProduct& product, cuda::Stream stream) override {
    num_rows_ += product.m;
    return library_->Multiply(product, stream);
  }
  int64_t num_rows() const { return num_rows_; }

 private:
  const std::unique_ptr<GemmLibrary> library_;
  int64_t num_rows_ = 0;
};

class CudaLongPrompts : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto library = cuda_testing::NewTestLibrary();
    if (!library.ok()) GTEST_SKIP() << library.status();
    // A library may refuse shapes as small as these.
    const auto runner = TryRunner(kFrom);
    if (absl::IsUnimplemented(runner.status())) GTEST_SKIP() << runner.status();
    ASSERT_TRUE(runner.ok()) << runner.status();
  }

  // from: INT32_MAX for no library.
  std::unique_ptr<Runner> NewRunner(int32_t from) { return TryRunner(from).value(); }

  absl::StatusOr<std::unique_ptr<Runner>> TryRunner(int32_t from) {
    std::unique_ptr<CountedLibrary> library;
    if (from != INT32_MAX) library = std::make_unique<CountedLibrary>(cuda_testing::NewTestLibrary().value());
    library_ = library.get();
    auto ops = NewCudaOps(cuda_testing::NewTestDevice().value(), {}, std::move(library)).value();
    absl::StatusOr<ModelWeights> weights = LoadWeights(model_.spec, ToyTensorNames(), model_.tensors, "toy", ops.get());
    EXPECT_TRUE(weights.ok()) << weights.status();
    RunnerOptions runner;
    runner.num_blocks = 64;
    runner.kv_dtype = KvDType::kBF16;
    runner.max_model_len = kMaxTokens;
    runner.max_num_seqs = runner.max_num_batched_tokens = kMaxTokens;
    runner.numerics.gemm_library_from = from;
    return Runner::Create(std::move(ops), model_.spec, *std::move(weights), runner);
  }

  static ModelSpec Spec() {
    ModelSpec spec = ToySpec();
    spec.vocab_size = 32;
    spec.layers.resize(2);
    GetParam().change(&spec);
    return spec;
  }

  const ToyModel model_ = MakeToyModel(Spec(), GetParam().weights, 1);
  const CountedLibrary* library_ = nullptr;  // of the last NewRunner
};

SamplingParams Drawn() {
  SamplingParams params = Greedy();
  params.temperature = 0.9f;  // a difference in any logit can show
  params.seed = 5;
  return params;
}

void ExpectSame(const TestSequence& got, const TestSequence& want, const char* how) {
  EXPECT_EQ(got.tokens, want.tokens) << how;
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size()) << how;
  for (size_t i = 0; i < want.logprobs.size(); ++i) {
    EXPECT_EQ(got.logprobs[i].chosen.logprob, want.logprobs[i].chosen.logprob) << how << ", token " << i;
  }
}

TEST_P(CudaLongPrompts, HaveTheSameBitsHoweverTheyAreScheduled) {
  const std::unique_ptr<Runner> runner = NewRunner(kFrom);
  const int64_t num_prepared = library_->num_prepared();
  const std::vector<int32_t> prompt = Prompt(40, 1);
  constexpr int32_t kNew = 10;
  StepDriver alone_driver(runner.get(), 1);
  TestSequence* alone = alone_driver.Add(prompt, Drawn());
  alone_driver.Generate(alone, kMaxTokens, kNew);

  // The last token of the prompt is a step of one row that asks for its logits, as recorded steps have.
  for (const int32_t chunk : {3, 13}) {
    StepDriver driver(runner.get(), 2);
    TestSequence* pieces = driver.Add(prompt, Drawn());
    driver.Generate(pieces, chunk, kNew);
    ExpectSame(*pieces, *alone, "in pieces");
  }

  // Computed again from the first token, with rows of the prompt and of what was generated in one piece.
  StepDriver again_driver(runner.get(), 3);
  TestSequence* again = again_driver.Add(prompt, Drawn());
  again_driver.Generate(again, 17, kNew / 2);
  again_driver.DropCache(again);
  again_driver.Generate(again, 27, kNew);
  ExpectSame(*again, *alone, "after a preemption");

  // Between others: short prompts, long ones, and what they generate.
  StepDriver driver(runner.get(), 4);
  TestSequence* sequence = driver.Add(prompt, Drawn());
  std::vector<TestSequence*> strangers;
  const auto left = [](TestSequence* s) { return int32_t(s->tokens.size()) - s->num_computed; };
  for (int32_t step = 0; std::ssize(sequence->tokens) < std::ssize(prompt) + kNew; ++step) {
    strangers.push_back(driver.Add(Prompt(step % 3 == 2 ? kFrom : 3 + step % 2, step), Drawn()));
    std::vector<StepDriver::Part> parts;
    for (size_t i = 0; i < strangers.size(); i += 2) parts.push_back({strangers[i], std::min(left(strangers[i]), 6)});
    parts.push_back({sequence, std::min(left(sequence), 11)});
    for (size_t i = 1; i < strangers.size(); i += 2) parts.push_back({strangers[i], std::min(left(strangers[i]), 5)});
    driver.Step(parts);
  }
  ExpectSame(*sequence, *alone, "in company");
  // The algorithms were chosen when the runner was made.
  EXPECT_GT(num_prepared, 0);
  EXPECT_EQ(library_->num_prepared(), num_prepared);
}

float Largest(const std::vector<std::vector<float>>& logits) {
  float largest = 0;
  for (const std::vector<float>& row : logits) {
    for (const float logit : row) largest = std::max(largest, std::abs(logit));
  }
  return largest;
}

TEST_P(CudaLongPrompts, AgreeWithOurOwnKernelsWhichShortPromptsKeep) {
  const std::unique_ptr<Runner> ours = NewRunner(INT32_MAX), by_library = NewRunner(kFrom);
  const int64_t rows_before = library_->num_rows();
  const std::vector<int32_t> brief = Prompt(kFrom - 1, 2), prompt = Prompt(40, 2);
  EXPECT_EQ(StepDriver(by_library.get()).AllLogits(brief), StepDriver(ours.get()).AllLogits(brief));
  EXPECT_EQ(library_->num_rows(), rows_before);

  const auto got = StepDriver(by_library.get()).AllLogits(prompt), want = StepDriver(ours.get()).AllLogits(prompt);
  // At least query, key and value, output, and what a feed-forward begins and ends with, or the shared expert.
  EXPECT_GE(library_->num_rows(), rows_before + std::ssize(prompt) * 4 * std::ssize(model_.spec.layers));
  ASSERT_EQ(got.size(), want.size());
  float worst = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    for (size_t i = 0; i < got[row].size(); ++i) {
      const float difference = std::abs(got[row][i] - want[row][i]);
      if (!(difference <= worst)) worst = difference;
    }
  }
  EXPECT_LE(worst, kTolerance * Largest(want));
}

INSTANTIATE_TEST_SUITE_P(All, CudaLongPrompts, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice::testing
