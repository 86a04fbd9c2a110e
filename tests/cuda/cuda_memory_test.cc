// The GPU's memory: what is left for the KV cache, what is refused and how, and that nothing asks for more once a
// runner is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "engine/model/model_loader.h"
#include "engine/model/summary.h"
#include "engine/ops/cuda/cuda_ops.h"
#include "engine/ops/cuda/step_graphs.h"
#include "engine/runtime/load_runner.h"
#include "tests/cuda/toy_cases.h"
#include "tests/cuda_on_cpu/emulated_device.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Counts {
  int64_t allocations = 0, replays = 0, bytes_in_use = 0;
};

std::unique_ptr<Ops> NewOps(Counts* counts, int64_t memory_bytes = int64_t{1} << 30, int64_t recording_bytes = 0,
                            int32_t num_free_recordings = 0) {
  EmulatedDeviceOptions options;
  options.memory_bytes = memory_bytes;
  options.recording_bytes = recording_bytes;
  options.num_free_recordings = num_free_recordings;
  options.num_allocations = &counts->allocations;
  options.num_replays = &counts->replays;
  options.bytes_in_use = &counts->bytes_in_use;
  return NewCudaOps(NewEmulatedDevice(options), {}).value();
}

// ---------------------------------------------------------------- nothing allocates

constexpr int32_t kMaxSeqs = 5, kMaxTokens = 24, kMaxLen = 80;

std::vector<int32_t> Prompt(int32_t length) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back((i * 7 + length) % 32);
  return tokens;
}

// What requests may ask for, one after the other: all that makes a sampler look at lists, and reports.
SamplingParams Asking(int32_t i) {
  SamplingParams params;
  params.temperature = i % 2 == 0 ? 0.8f : 0;
  params.top_k = 7;
  params.top_p = 0.9f;
  params.repetition_penalty = 1.2f;
  params.frequency_penalty = 0.3f;
  params.presence_penalty = 0.1f;
  for (int32_t token = 0; token < 32; ++token) params.logit_bias.push_back({token, 0.01f * float(token)});
  params.logprobs = i % 3 == 2 ? 0 : 32;
  return params;
}

class NothingAllocates : public ::testing::TestWithParam<ToyCase> {};

TEST_P(NothingAllocates, OnceTheRunnerIsThere) {
  const ToyModel model = MakeToyModel(MakeToySpec(GetParam()), GetParam().weights, GetParam().seed);
  Counts counts;
  std::unique_ptr<Ops> ops = NewOps(&counts);
  absl::StatusOr<ModelWeights> weights = LoadWeights(model.spec, ToyTensorNames(), model.tensors, "toy", ops.get());
  ASSERT_TRUE(weights.ok()) << weights.status();
  RunnerOptions options;
  options.num_blocks = 48;
  options.kv_dtype = KvDType::kBF16;
  options.max_model_len = kMaxLen;
  options.max_num_seqs = kMaxSeqs;
  options.max_num_batched_tokens = kMaxTokens;
  options.max_logprobs = 32;
  options.max_adjusted = 32;
  options.numerics.mla_expand_from = 32;  // for some of the prompts
  const std::unique_ptr<Runner> runner =
      Runner::Create(std::move(ops), model.spec, *std::move(weights), options).value();
  counts.allocations = counts.replays = 0;

  StepDriver driver(runner.get());
  std::vector<TestSequence*> sequences;
  // Chunks of a prompt beside sequences that generate; then batches of every size, and of every size again as others
  // leave.
  for (int32_t i = 0; i < kMaxSeqs; ++i) {
    sequences.push_back(driver.Add(Prompt(30 + i), Asking(i)));
    sequences.back()->allowed_tokens = {0x7ffffffe};  // as all of them may ask at once
    for (int32_t chunk : {kMaxTokens - i, 30 + i - (kMaxTokens - i)}) {
      std::vector<StepDriver::Part> parts = {{sequences.back(), chunk}};
      for (int32_t j = 0; j < i; ++j) parts.push_back({sequences[size_t(j)], 1});
      driver.Step(parts);
    }
  }
  int64_t num_generating = 0;
  for (int32_t size = kMaxSeqs; size > 0; --size) {
    for (int32_t step = 0; step < 3; ++step, ++num_generating) {
      std::vector<StepDriver::Part> parts;
      for (int32_t j = 0; j < size; ++j) parts.push_back({sequences[size_t(j)], 1});
      driver.Step(parts);
    }
  }
  driver.Generate(sequences[0], 1, kMaxLen - 30);  // to the end of the context
  for (TestSequence* sequence : sequences) driver.DropCache(sequence);
  driver.PromptLogprobs(Prompt(40));
  EXPECT_EQ(counts.allocations, 0);
  EXPECT_GE(counts.replays, num_generating) << "from the first step of each size on";
}

INSTANTIATE_TEST_SUITE_P(All, NothingAllocates, ::testing::ValuesIn(ToyCases().begin(), ToyCases().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MasksOfALargeVocabulary, HaveTheirRoomFromTheStart) {
  ModelSpec spec = ToySpec();
  spec.vocab_size = 20001;
  const ToyModel model = MakeToyModel(spec, TensorType::kBF16, 1);
  Counts counts;
  std::unique_ptr<Ops> ops = NewOps(&counts);
  absl::StatusOr<ModelWeights> weights = LoadWeights(model.spec, ToyTensorNames(), model.tensors, "toy", ops.get());
  ASSERT_TRUE(weights.ok()) << weights.status();
  RunnerOptions options;
  options.num_blocks = kMaxSeqs;
  options.kv_dtype = KvDType::kBF16;
  options.max_model_len = 16;
  options.max_num_seqs = options.max_num_batched_tokens = kMaxSeqs;
  options.max_logprobs = options.max_adjusted = 0;  // so that nothing else has room to spare
  const std::unique_ptr<Runner> runner =
      Runner::Create(std::move(ops), model.spec, *std::move(weights), options).value();
  counts.allocations = 0;
  StepDriver driver(runner.get());
  std::vector<TestSequence*> sequences;
  std::vector<StepDriver::Part> parts;
  for (int32_t i = 0; i < kMaxSeqs; ++i) {
    sequences.push_back(driver.Add({i}, SamplingParams()));
    sequences.back()->allowed_tokens.assign(626, uint32_t{1} << i);  // of each 32 tokens one
    parts.push_back({sequences.back(), 1});
  }
  driver.Step(parts);
  EXPECT_EQ(counts.allocations, 0);
  for (int32_t i = 0; i < kMaxSeqs; ++i) EXPECT_EQ(sequences[size_t(i)]->tokens.back() % 32, i);
}

// ---------------------------------------------------------------- the pool

class KvPool : public ::testing::Test {
 protected:
  KvPool() {
    ToyModel toy = MakeToyModel(ToySpec(), TensorType::kBF16, 1);
    model_.path = "toy.gguf";
    model_.spec = toy.spec;
    model_.tensors = toy.tensors;
    bytes_ = std::move(toy.bytes);
    model_.naming = &naming_;
    options_.kv.dtype = KvDType::kBF16;
    options_.kv.max_num_seqs = 4;
    options_.kv.max_num_batched_tokens = 16;
  }

  absl::StatusOr<std::unique_ptr<Runner>> Load(int64_t memory_bytes) {
    counts_ = {};
    return LoadRunner(model_, NewOps(&counts_, memory_bytes, recording_bytes_, num_free_recordings_), options_);
  }
  std::string Refusal(int64_t memory_bytes) {
    const absl::Status status = Load(memory_bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(counts_.bytes_in_use, 0);
    return std::string(status.message());
  }
  // Of a runner that is there, in use by all but the cache.
  int64_t BytesWithoutCache(const Runner& runner) const { return counts_.bytes_in_use - runner.kv_bytes(); }

  const TensorNaming naming_ = ToyTensorNames();
  std::deque<std::vector<uint8_t>> bytes_;
  LoadedModel model_;
  LoadRunnerOptions options_;
  Counts counts_;
  int64_t recording_bytes_ = 0;
  int32_t num_free_recordings_ = 0;
};

TEST_F(KvPool, HoldsEverySequenceWhereThereIsRoom) {
  const auto runner = Load(int64_t{1} << 30);
  ASSERT_TRUE(runner.ok()) << runner.status();
  EXPECT_EQ((*runner)->options().num_blocks, 4 * 128 / 16);
  EXPECT_EQ((*runner)->options().max_model_len, 128);
}

TEST_F(KvPool, TakesAllThatTheWorkspaceLeavesButAMargin) {
  options_.kv.max_num_seqs = 64;
  const int64_t block = KvBlockBytes(model_.spec, 16, KvDType::kBF16);
  int32_t num_blocks = 0;
  int64_t other = 0;
  {
    const auto runner = Load(int64_t{1} << 30);
    ASSERT_TRUE(runner.ok()) << runner.status();
    other = BytesWithoutCache(**runner);
    num_blocks = (*runner)->options().num_blocks;
    ASSERT_EQ(num_blocks, 64 * 8);
  }
  // Less than all sequences need, by an amount that leaves the workspace (cut for fewer tokens) somewhat smaller.
  const int64_t memory = other + num_blocks / 2 * block;
  const auto runner = Load(memory);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const int64_t free = memory - BytesWithoutCache(**runner);
  EXPECT_LE(BytesWithoutCache(**runner), other);
  EXPECT_EQ((*runner)->options().num_blocks, (free - free / 16) / block);
  EXPECT_LT((*runner)->options().num_blocks, num_blocks);
}

TEST_F(KvPool, LeavesRoomForRecordings) {
  options_.kv.max_num_seqs = 64;
  const int64_t block = KvBlockBytes(model_.spec, 16, KvDType::kBF16);
  recording_bytes_ = 3 * block;
  int64_t other = 0;
  {
    const auto runner = Load(int64_t{1} << 30);
    ASSERT_TRUE(runner.ok()) << runner.status();
    other = BytesWithoutCache(**runner);
  }
  // Recordings are among the other bytes, and there is less than all sequences need.
  const int64_t memory = other + 64 * 8 / 2 * block;
  const auto runner = Load(memory);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const int64_t free = memory - BytesWithoutCache(**runner);
  EXPECT_EQ((*runner)->options().num_blocks, (free - free / 16) / block);
}

TEST_F(KvPool, RecordingsThatDoNotFitAreLeftOut) {
  options_.kv.max_num_seqs = options_.kv.max_num_batched_tokens = 64;
  num_free_recordings_ = 4 + 3;  // those that are to show what one takes, and three of 11
  recording_bytes_ = int64_t{1} << 28;
  const auto runner = Load(int64_t{1} << 30);
  ASSERT_TRUE(runner.ok()) << runner.status();
  EXPECT_EQ(BytesWithoutCache(**runner) >> 28, 3) << "three more fit";
  StepDriver driver(runner->get());
  TestSequence* sequence = driver.Add(Prompt(10), SamplingParams());
  driver.Generate(sequence, 16, 3);
  EXPECT_GT(counts_.replays, 0) << "small steps were recorded first";
  std::vector<StepDriver::Part> parts;
  for (int i = 0; i < 40; ++i) {
    TestSequence* other = driver.Add(Prompt(2), SamplingParams());
    driver.Step({{other, 2}});
    parts.push_back({other, 1});
  }
  const int64_t replays = counts_.replays;
  driver.Step(parts);
  EXPECT_EQ(counts_.replays, replays) << "large ones are not";
}

TEST_F(KvPool, IsWhatWasAskedForIfThatIsThere) {
  const int64_t block = KvBlockBytes(model_.spec, 16, KvDType::kBF16);
  options_.kv.kv_memory_bytes = 11 * block + 1;
  const auto runner = Load(int64_t{1} << 30);
  ASSERT_TRUE(runner.ok()) << runner.status();
  EXPECT_EQ((*runner)->options().num_blocks, 11);
  options_.kv.kv_memory_bytes = int64_t{1} << 40;
  EXPECT_THAT(Refusal(int64_t{1} << 30), AllOf(HasSubstr("--kv-memory asks for 1099511627776 bytes"),
                                               HasSubstr("are available; lower --kv-memory")));
}

TEST_F(KvPool, WeightsThatCannotFitAreRefusedBeforeTheyAreLoaded) {
  int64_t weights = 0;
  for (const TensorView& tensor : model_.tensors) weights += tensor.num_elements() * 2;
  const int64_t memory = int64_t{1} << 16;
  EXPECT_EQ(Refusal(memory), "toy.gguf: the weights need at least " + std::to_string(weights) + " bytes (" +
                                 FormatBytes(weights) + "), but 61440 bytes (60.00 KiB) are available; take a model " +
                                 "with fewer or smaller weights, or --device cpu");
  EXPECT_EQ(counts_.allocations, 0);
}

TEST_F(KvPool, AWorkspaceThatDoesNotFitNamesItsFlags) {
  options_.kv.max_num_batched_tokens = 1 << 14;
  options_.kv.max_num_seqs = 8;
  EXPECT_THAT(Refusal(int64_t{8} << 20),
              AllOf(HasSubstr("the workspace for steps of up to 16384 tokens and 8 sequences of 128 does not fit"),
                    HasSubstr("device memory: asked for "),
                    HasSubstr(" are free; lower --max-num-batched-tokens, "
                              "--max-num-seqs or --max-model-len")));
}

TEST_F(KvPool, ATooLargeContextIsRefusedNamingItsFlags) {
  const auto smallest = Load(int64_t{1} << 30);
  ASSERT_TRUE(smallest.ok()) << smallest.status();
  const int64_t memory = BytesWithoutCache(**smallest) + KvBlockBytes(model_.spec, 16, KvDType::kBF16) * 5;
  options_.kv.max_model_len = 128;
  EXPECT_THAT(Refusal(memory),
              AllOf(HasSubstr("one sequence of 128 tokens needs "), HasSubstr(" of KV cache, but "),
                    HasSubstr(" are available for it; lower --max-model-len or lower --max-num-batched-tokens or "
                              "--max-num-seqs, which set the workspace")));
}

// ---------------------------------------------------------------- recordings

StepLimits Limits(int32_t max_seqs, int32_t max_blocks) {
  StepLimits limits;
  limits.max_tokens = 2048;
  limits.max_seqs = limits.max_logits = max_seqs;
  limits.max_blocks_per_seq = max_blocks;
  return limits;
}

TEST(StepGraphs, ShapesHoldEveryGeneratingStepAndAreFew) {
  for (const int32_t max_seqs : {1, 3, 8, 20, 64, 256, 1000}) {
    for (const int32_t max_blocks : {1, 15, 16, 100, 512, 8192}) {
      StepGraphs recordings;
      recordings.SetLimits(Limits(max_seqs, max_blocks));
      if (max_seqs <= 256) {
        EXPECT_LE(recordings.shapes().size(), size_t{StepGraphs::kMost});
      }
      for (int32_t rows = 1; rows <= max_seqs; ++rows) {
        for (const int32_t blocks : {1, (max_blocks + 1) / 2, max_blocks}) {
          const auto shape = recordings.ShapeFor({rows, rows, rows, blocks});
          ASSERT_TRUE(shape.has_value()) << rows << " rows, " << blocks << " blocks";
          EXPECT_GE(shape->num_tokens, rows);
          EXPECT_LE(shape->num_tokens, std::min(max_seqs, std::max(2 * rows, rows + 15)));
          EXPECT_GE(shape->block_table_stride, blocks);
          EXPECT_EQ(shape->num_seqs, shape->num_tokens);
          EXPECT_EQ(shape->num_logits, shape->num_tokens);
        }
      }
      EXPECT_FALSE(recordings.ShapeFor({max_seqs + 1, max_seqs + 1, max_seqs + 1, 1}).has_value());
      EXPECT_FALSE(recordings.ShapeFor({1, 1, 1, max_blocks + 1}).has_value());
    }
  }
}

TEST(StepGraphs, StepsWithPromptsHaveNoShape) {
  StepGraphs recordings;
  recordings.SetLimits(Limits(64, 512));
  EXPECT_EQ(recordings.shapes().size(), 11u * 3);
  EXPECT_EQ(recordings.ShapeFor({9, 9, 9, 33}), (StepShape{16, 16, 16, 128}));
  EXPECT_FALSE(recordings.ShapeFor({8, 2, 2, 16}).has_value());
  EXPECT_FALSE(recordings.ShapeFor({2, 2, 1, 16}).has_value());
}

}  // namespace
}  // namespace sluice::testing
