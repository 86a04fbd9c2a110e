// Models whose layers see different keys, served by the engine: giving back what nobody can see changes no bit of an
// answer, whoever shares the steps and the pool.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/model/kv_groups.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/runtime/runner.h"
#include "engine/scheduler/kv_blocks.h"
#include "tests/model/toy_model.h"
#include "tests/scheduler/engine_harness.h"

namespace sluice::testing {
namespace {

constexpr AttentionMask kFull{};
constexpr AttentionMask Window(int32_t size) { return {MaskKind::kWindow, size}; }
constexpr AttentionMask Chunk(int32_t size) { return {MaskKind::kChunk, size}; }

struct Case {
  const char* name;
  std::vector<AttentionMask> masks;  // by layer
  size_t num_groups;
  bool mla = false;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

const Case kCases[] = {
    {"Alternating", {Window(20), kFull, Window(20), kFull}, 2},
    {"FiveToOne", {Window(24), Window(24), Window(24), Window(24), Window(24), kFull, Window(24)}, 7},
    {"ThreeToOneChunks", {Chunk(24), Chunk(24), Chunk(24), kFull}, 4},
    {"PlacesLeftOver", {kFull, kFull, Window(33), Window(33), Window(33)}, 3},
    {"ThreeMasks", {Window(17), Chunk(32), kFull}, 3},
    {"WindowEverywhere", {Window(40), Window(40)}, 1},
    {"LatentAndWindow", {Window(20), kFull}, 2, true},
};

ModelSpec MakeSpec(const Case& c) {
  ModelSpec spec = ToySpec();
  spec.layers.resize(c.masks.size(), spec.layers[0]);
  for (size_t i = 0; i < c.masks.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    attention.mask = c.masks[i];
    if (!c.mla) continue;
    attention.kind = Mla{.num_heads = 4,
                         .q_lora_rank = {},
                         .kv_lora_rank = 32,
                         .qk_nope_head_dim = 24,
                         .qk_rope_head_dim = 16,
                         .v_head_dim = 20};
    attention.rope->layout = RopeLayout::kInterleaved;
  }
  return spec;
}

std::unique_ptr<Runner> NewRunner(const ToyModel& model, const ModelSpec& spec, const EngineOptions& engine) {
  CpuOpsOptions cpu;
  cpu.num_threads = 2;
  std::unique_ptr<Ops> ops = NewCpuOps(cpu).value();
  absl::StatusOr<ModelWeights> weights = LoadWeights(spec, ToyTensorNames(), model.tensors, "toy", ops.get());
  EXPECT_TRUE(weights.ok()) << weights.status();
  RunnerOptions options;
  options.block_size = engine.block_size;
  options.num_blocks = engine.num_blocks;
  options.max_model_len = engine.max_model_len;
  options.max_num_seqs = engine.max_num_seqs;
  options.max_num_batched_tokens = engine.max_num_batched_tokens;
  return Runner::Create(std::move(ops), spec, *std::move(weights), options).value();
}

struct Answers {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> logprobs, prompt_logprobs;
  int64_t num_preemptions = 0, num_cached = 0;

  bool SameAs(const Answers& other) const {
    return tokens == other.tokens && logprobs == other.logprobs && prompt_logprobs == other.prompt_logprobs;
  }
};

class HybridTest : public ::testing::TestWithParam<Case> {
 protected:
  HybridTest() {
    std::mt19937 rng(3);
    for (const auto& [prompt_len, max_tokens] :
         {std::pair(6, 80), {5, 75}, {30, 50}, {70, 30}, {1, 80}, {90, 12}, {16, 70}}) {
      Request& request = requests_.emplace_back();
      for (int i = 0; i < prompt_len; ++i) request.prompt_tokens.push_back(int32_t(rng() % 96));
      request.sampling.seed = rng();
      request.sampling.max_tokens = max_tokens;
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 0;
      request.sampling.prompt_logprobs = 0;
    }
    AssignKvGroups(&grouped_);
  }

  // How to serve with these groups: a pool for `num_sequences` of the longest.
  static EngineOptions Options(std::vector<AttentionMask> kv_groups, int32_t max_num_seqs, int32_t max_rows,
                               int32_t num_sequences) {
    EngineOptions options;
    options.max_model_len = 102;
    options.vocab_size = ToySpec().vocab_size;
    options.kv_groups = std::move(kv_groups);
    options.max_num_seqs = max_num_seqs;
    options.max_num_batched_tokens = max_rows;
    options.num_blocks = num_sequences * int32_t(PeakBlocks(options.max_model_len - 1, options));
    options.admit_by_forecast = false;  // so that there are preemptions
    return options;
  }

  // Answers to the requests, all at once; if they are served several times, to the last time.
  Answers Serve(const ModelSpec& spec, const EngineOptions& options, int times = 1) {
    RecordingSink sink;
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        Engine::Create(options, NewRunner(model_, spec, options), &sink, Clock::Real());
    EXPECT_TRUE(engine.ok()) << engine.status();
    std::vector<SequenceId> ids;
    for (int i = 1; i <= times; ++i) {
      const absl::StatusOr<std::vector<SequenceId>> submitted = (*engine)->Submit(requests_);
      EXPECT_TRUE(submitted.ok()) << submitted.status();
      if (!submitted.ok()) return {};
      ids = *submitted;
      sink.WaitForFinished(i * int(requests_.size()));
    }
    Answers answers;
    for (const SequenceId id : ids) {
      const Collected result = sink.Get(id);
      EXPECT_EQ(result.last.finish_reason, FinishReason::kLength);
      answers.num_cached += result.last.num_cached_tokens;
      answers.tokens.push_back(result.tokens);
      answers.logprobs.push_back(result.logprobs);
      answers.prompt_logprobs.push_back(result.prompt_logprobs);
    }
    answers.num_preemptions = (*engine)->Stats().num_preemptions;
    return answers;
  }

  const ModelSpec one_group_ = MakeSpec(GetParam());
  ModelSpec grouped_ = one_group_;
  const ToyModel model_ = MakeToyModel(one_group_, TensorType::kF32, 5);
  std::vector<Request> requests_;
};

TEST_P(HybridTest, GivingBlocksBackChangesNoBit) {
  const std::vector<AttentionMask> groups = MakeKvGroups(grouped_).masks;
  ASSERT_EQ(groups.size(), GetParam().num_groups);
  // One group of layers that keeps everything, one sequence at a time, prompts in one piece.
  const Answers expected = Serve(one_group_, Options({kFull}, 1, 128, 1));
  EXPECT_EQ(expected.num_preemptions, 0);
  EXPECT_TRUE(Serve(grouped_, Options(groups, 1, 128, 1)).SameAs(expected)) << "alone";
  EXPECT_TRUE(Serve(grouped_, Options(groups, 1, 7, 1)).SameAs(expected)) << "in chunks of 7";
  EXPECT_TRUE(Serve(grouped_, Options(groups, 7, 128, 7)).SameAs(expected)) << "batched";
  // As many as there is room for, in a pool of one.
  const Answers tight = Serve(grouped_, Options(groups, 7, 16, 1));
  EXPECT_GT(tight.num_preemptions, 0);
  EXPECT_TRUE(tight.SameAs(expected)) << "preempted";
}

TEST_P(HybridTest, APrefixFoundInTheCacheChangesNoBit) {
  const std::vector<AttentionMask> groups = MakeKvGroups(grouped_).masks;
  for (Request& request : requests_) request.sampling.prompt_logprobs.reset();
  // Some more that begin like others and part in or between blocks.
  for (const auto& [whose, shared] : {std::pair(5, 90), {5, 64}, {5, 40}, {3, 48}, {3, 50}}) {
    Request request = requests_[size_t(whose)];
    request.prompt_tokens.resize(size_t(shared));
    for (int32_t i = 0; i < 5; ++i) request.prompt_tokens.push_back((request.prompt_tokens[0] + 7 * i + shared) % 96);
    request.sampling.max_tokens = 7;
    requests_.push_back(std::move(request));
  }
  const Answers expected = Serve(one_group_, Options({kFull}, 1, 128, 1));
  EXPECT_EQ(expected.num_cached, 0);
  const auto serve = [&](int32_t max_num_seqs, int32_t max_rows, int32_t num_sequences, int times) {
    EngineOptions options = Options(groups, max_num_seqs, max_rows, num_sequences);
    options.prefix_cache = true;
    return Serve(grouped_, options, times);
  };
  const Answers alone = serve(1, 128, 1, 1), warm = serve(1, 128, 12, 2), batched = serve(7, 128, 7, 2);
  EXPECT_TRUE(alone.SameAs(expected)) << "alone";
  EXPECT_TRUE(warm.SameAs(expected)) << "with everything in the cache";
  EXPECT_GT(warm.num_cached, 300);
  EXPECT_TRUE(batched.SameAs(expected)) << "batched";
  EXPECT_GT(batched.num_cached, 200);
  EXPECT_TRUE(serve(7, 7, 7, 2).SameAs(expected)) << "in chunks of 7";
  const Answers tight = serve(7, 16, 1, 1);
  EXPECT_GT(tight.num_preemptions, 0);
  EXPECT_TRUE(tight.SameAs(expected)) << "preempted";
}

// The same pool has room for more sequences at a time.
TEST_P(HybridTest, BlockMemoryIsThatOfAGroupsLayers) {
  const auto bytes = [](const ModelSpec& spec) { return MakeKvCacheShape(spec, 10, 16, KvDType::kF16).bytes(); };
  const KvGroups groups = MakeKvGroups(grouped_);
  const int64_t layer_bytes = KvValuesPerToken(grouped_.layers[0]) * 10 * 16 * 2;
  EXPECT_EQ(bytes(one_group_), layer_bytes * int64_t(one_group_.layers.size()));
  EXPECT_EQ(bytes(grouped_), layer_bytes * groups.num_storages);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HybridTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::testing
