// The whole of the GPU's path, scheduler to sampler: an engine that launches asynchronously, with the GPU emulated. Whoever shares
// its steps, is cut into chunks or preempted gets the very tokens and log-probabilities that it gets alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/model/kv_groups.h"
#include "engine/model/rope.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/cuda/cuda_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/runtime/runner.h"
#include "tests/cuda/test_device.h"
#include "tests/model/toy_model.h"
#include "tests/scheduler/automaton_constraint.h"
#include "tests/scheduler/engine_harness.h"

namespace sluice::testing {
namespace {

constexpr int32_t kVocabSize = 32;
constexpr int32_t kMaxModelLen = 96;

ModelSpec DenseWithWindows() {
  ModelSpec spec = ToySpec();
  spec.vocab_size = kVocabSize;
  spec.layers[0].attention.mask = spec.layers[2].attention.mask = {MaskKind::kWindow, 24};
  return spec;
}

ModelSpec LatentWithExperts() {
  ModelSpec spec = ToySpec();
  spec.vocab_size = kVocabSize;
  for (LayerSpec& layer : spec.layers) {
    layer.attention.kind = Mla{.num_heads = 4,
                               .q_lora_rank = std::nullopt,
                               .kv_lora_rank = 32,
                               .qk_nope_head_dim = 16,
                               .qk_rope_head_dim = 16,
                               .v_head_dim = 16};
    layer.attention.rope->layout = RopeLayout::kInterleaved;
    MoeFfn moe;
    moe.routing.num_experts = 8;
    moe.routing.num_experts_per_token = 2;
    moe.routing.renormalize = true;
    moe.expert_intermediate_size = 48;
    moe.shared_intermediate_size = 48;
    layer.ffn = moe;
  }
  return spec;
}

Request RequestOf(int32_t prompt_len, int32_t max_tokens, uint64_t seed) {
  Request request;
  request.prompt_tokens = MakePrompt(prompt_len, int32_t(seed), kVocabSize);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.sampling.temperature = 0;
  return request;
}

// Even and odd tokens in turns; complete behind an even one.
std::shared_ptr<const TokenConstraint> Alternating() {
  auto automaton = std::make_shared<Automaton>();
  for (int32_t state : {0, 1}) {
    automaton->next.emplace_back(size_t(kVocabSize), Automaton::kNone);
    for (int32_t token = state; token < kVocabSize; token += 2) automaton->next.back()[size_t(token)] = 1 - state;
    automaton->complete.push_back(state == 1);
  }
  return std::make_shared<AutomatonConstraint>(automaton);
}

// Something of everything that a sampler and a scheduler may be asked for.
std::vector<Request> ManyRequests() {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 9; ++i) requests.push_back(RequestOf(1 + i * 5 % 33, 40 - 3 * i, uint64_t(i) + 1));
  for (size_t i = 1; i < requests.size(); i += 2) {
    requests[i].sampling.temperature = 0.9f;
    requests[i].sampling.top_p = i % 4 == 1 ? 0.8f : 1;
    requests[i].sampling.logprobs = int32_t(i % 3);
  }
  for (size_t i = 0; i < 3; ++i) requests[i].sampling.ignore_eos = true;  // these get long
  requests[2].sampling.frequency_penalty = 0.5f;
  requests[3].sampling.repetition_penalty = 1.3f;
  requests[4].sampling.prompt_logprobs = 1;
  requests[5].sampling.logit_bias = {{3, 2.f}, {9, -5.f}};
  requests[6].sampling.stop_token_ids = {7, 8, 9, 10};
  requests[7].sampling.stop_token_ids = {1, 2};
  requests[7].sampling.min_tokens = 4;
  requests[8].sampling.top_k = 5;
  requests[8].sampling.temperature = 1;
  for (uint64_t seed : {10, 11, 12}) requests.push_back(RequestOf(int32_t(seed), 24, seed));
  requests[9].sampling.allowed_token_ids = {2, 3, 5, 8, 13, 21};
  requests[9].sampling.logprobs = 2;
  requests[10].sampling.temperature = 1.2f;
  requests[10].sampling.allowed_token_ids = requests[9].sampling.allowed_token_ids;
  requests[10].sampling.logit_bias = {{1, 50.f}, {2, 1.f}};
  requests[11].constraint = Alternating();
  requests[11].sampling.temperature = 1;
  return requests;
}

void ExpectAllowed(const std::vector<Collected>& outputs) {
  for (size_t i : {9, 10}) {
    EXPECT_EQ(outputs[i].tokens.size(), 24u) << "no end token is allowed";
    EXPECT_THAT(outputs[i].tokens, ::testing::Each(::testing::AnyOf(2, 3, 5, 8, 13, 21)));
  }
  for (size_t i = 0; i < outputs[11].tokens.size(); ++i) {
    EXPECT_EQ(outputs[11].tokens[i] % 2, int32_t(i % 2)) << i;
  }
}

struct Served {
  std::vector<Collected> outputs;  // by request
  int64_t num_preemptions = 0;
};

class CudaEngine : public ::testing::TestWithParam<ModelSpec (*)()> {
 protected:
  struct Limits {
    int32_t num_blocks = 64, max_num_batched_tokens = 64;
  };

  Served Serve(std::unique_ptr<Ops> ops, KvDType kv_dtype, const Limits& limits, bool together) {
    absl::StatusOr<ModelWeights> weights = LoadWeights(model_.spec, ToyTensorNames(), model_.tensors, "toy", ops.get());
    EXPECT_TRUE(weights.ok()) << weights.status();
    RunnerOptions options;
    options.block_size = 16;
    options.num_blocks = limits.num_blocks;
    options.kv_dtype = kv_dtype;
    options.max_model_len = kMaxModelLen;
    options.max_num_seqs = 8;
    options.max_num_batched_tokens = limits.max_num_batched_tokens;
    auto runner = Runner::Create(std::move(ops), model_.spec, *std::move(weights), options).value();
    EngineOptions engine_options;
    runner->SetEngineOptions(&engine_options);
    engine_options.eos_token_ids = {kVocabSize - 1};
    engine_options.admit_by_forecast = false;  // so that there are preemptions

    RecordingSink sink;
    auto engine = Engine::Create(engine_options, std::move(runner), &sink, Clock::Real()).value();
    if (together) {
      EXPECT_TRUE(engine->Submit(requests_).ok());
      sink.WaitForFinished(int(requests_.size()));
    } else {
      for (size_t i = 0; i < requests_.size(); ++i) {
        SubmitOne(engine.get(), requests_[i]);
        sink.WaitForFinished(int(i) + 1);
      }
    }
    ExpectAtRest(engine->Stats());
    Served served;
    served.num_preemptions = engine->Stats().num_preemptions;
    for (SequenceId id = 1; id <= requests_.size(); ++id) served.outputs.push_back(sink.Get(id));
    return served;
  }

  std::unique_ptr<Ops> NewGpu(cuda::Element element, int64_t* num_replays = nullptr) {
    CudaOpsOptions options;
    options.activations = element;
    return NewCudaOps(cuda_testing::NewTestDevice(num_replays).value(), options).value();
  }

  const ToyModel model_ = MakeToyModel(GetParam()(), TensorType::kBF16, 1);
  const std::vector<Request> requests_ = ManyRequests();
};

void ExpectSame(const Served& got, const Served& want) {
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(got.outputs[i].tokens, want.outputs[i].tokens);
    EXPECT_EQ(got.outputs[i].last.finish_reason, want.outputs[i].last.finish_reason);
    EXPECT_EQ(got.outputs[i].last.stop_token, want.outputs[i].last.stop_token);
  }
}

TEST_P(CudaEngine, SharedChunkedAndPreemptedIsAsAloneBitForBit) {
  int64_t num_replays = 0;
  const Served alone = Serve(NewGpu(cuda::Element::kBF16, &num_replays), KvDType::kBF16, {}, false);
  if (num_replays >= 0) {
    EXPECT_GT(num_replays, 100) << "decode steps were not replayed";
  }
  const Served shared = Serve(NewGpu(cuda::Element::kBF16), KvDType::kBF16, {}, true);
  // Room for one long sequence and little more; chunks of what decoding rows leave of 16.
  const int32_t num_blocks = 3 + 3 * int32_t(MakeKvGroups(model_.spec).masks.size());
  const Served squeezed = Serve(NewGpu(cuda::Element::kBF16), KvDType::kBF16, {num_blocks, 16}, true);
  EXPECT_GT(squeezed.num_preemptions, 0);
  ExpectAllowed(alone.outputs);
  for (const Served* served : {&shared, &squeezed}) {
    ExpectSame(*served, alone);
    for (size_t i = 0; i < alone.outputs.size(); ++i) {
      EXPECT_EQ(served->outputs[i].logprobs, alone.outputs[i].logprobs) << i;
      EXPECT_EQ(served->outputs[i].prompt_logprobs, alone.outputs[i].prompt_logprobs) << i;
    }
  }
}

TEST_P(CudaEngine, InF32ItServesTheTokensOfTheCpu) {
  CpuOpsOptions cpu;
  cpu.num_threads = 2;
  cpu.activations = ActivationType::kF32;
  const Served want = Serve(NewCpuOps(cpu).value(), KvDType::kF32, {}, true);
  ExpectSame(Serve(NewGpu(cuda::Element::kF32), KvDType::kF32, {}, true), want);
}

TEST_P(CudaEngine, NothingButWhatIsAllowedIsGeneratedOnAnyDevice) {
  CpuOpsOptions cpu;
  cpu.num_threads = 2;
  ExpectAllowed(Serve(NewReferenceOps(), KvDType::kF32, {}, true).outputs);
  ExpectAllowed(Serve(NewCpuOps(cpu).value(), KvDType::kF16, {}, true).outputs);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaEngine, ::testing::Values(&DenseWithWindows, &LatentWithExperts),
                         [](const auto& info) { return info.index == 0 ? "DenseWithWindows" : "LatentWithExperts"; });

}  // namespace
}  // namespace sluice::testing
