// Who is let in: the pool carries those who run to the end of their outputs, as long as these are expected to be, and
// no fewer than that. In simulated time.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/scheduler/simulation.h"

namespace sluice {
namespace {

using testing::NeededRows;
using testing::SimulatedCall;
using testing::Simulate;
using testing::SimulationResult;

constexpr AttentionMask kFull{};
constexpr AttentionMask kWindow{MaskKind::kWindow, 64};
constexpr AttentionMask kChunk{MaskKind::kChunk, 128};

EngineOptions Options(int32_t num_blocks, std::vector<AttentionMask> groups = {kFull}) {
  EngineOptions options;
  options.max_model_len = 8192;
  options.vocab_size = 1000;
  options.eos_token_ids = {999};
  options.num_blocks = num_blocks;
  options.kv_groups = std::move(groups);
  return options;
}

// Computed in vain, as a part of what was needed.
double ExtraRows(const SimulationResult& result, const std::vector<SimulatedCall>& calls) {
  return double(result.num_rows) / double(NeededRows(calls)) - 1;
}

// The least that a fixed number of sequences at a time takes.
double BestFixedSeconds(EngineOptions options, const std::vector<SimulatedCall>& calls) {
  double best = 1e9;
  for (const int32_t num : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48}) {
    options.max_num_seqs = num;
    std::vector<SimulatedCall> again = calls;
    best = std::min(best, Simulate(options, absl::MakeSpan(again)).seconds);
  }
  return best;
}

TEST(AdmissionSimulationTest, SmallPoolsMatchTheBestFixedLimit) {
  const struct {
    EngineOptions options;
    SimulatedCall call;
  } cases[] = {
      {Options(64), {.prompt = 50, .output = 300}},
      {Options(128), {.prompt = 50, .output = 300}},
      {Options(256), {.prompt = 50, .output = 300}},
      {Options(64), {.prompt = 50, .output = 300, .max_tokens = 300}},
      {Options(64), {.prompt = 50, .output = 300, .max_tokens = 900}},
      {Options(64), {.prompt = 600, .output = 100}},
      {Options(128), {.prompt = 600, .output = 100}},
      {Options(128, {kFull, kWindow}), {.prompt = 50, .output = 300}},
      {Options(160, {kFull, kWindow, kChunk}), {.prompt = 400, .output = 300}},
      {Options(64, {kWindow}), {.prompt = 50, .output = 300}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.options.num_blocks << " blocks, " << c.options.kv_groups.size()
                                    << " groups, output of " << c.call.output << " of " << c.call.max_tokens);
    std::vector<SimulatedCall> calls(64, c.call);
    const double best = BestFixedSeconds(c.options, calls);
    const SimulationResult result = Simulate(c.options, absl::MakeSpan(calls));
    EXPECT_LE(ExtraRows(result, calls), 0.01);
    EXPECT_LE(result.seconds, best * 1.01);
  }
}

TEST(AdmissionSimulationTest, LengthsThatNobodyKnowsCostFewRows) {
  for (const int32_t num_blocks : {64, 128, 256}) {
    std::mt19937 rng(1);
    std::vector<SimulatedCall> calls;
    for (int i = 0; i < 256; ++i) {
      calls.push_back({.prompt = 50, .output = 1 + int32_t(rng() % 300), .max_tokens = 300});
    }
    const double best = BestFixedSeconds(Options(num_blocks), calls);
    const SimulationResult result = Simulate(Options(num_blocks), absl::MakeSpan(calls));
    EXPECT_LE(ExtraRows(result, calls), 0.05) << num_blocks;
    EXPECT_LE(result.seconds, best * 1.02) << num_blocks;
  }
}

TEST(AdmissionSimulationTest, CallsThatStopEarlyAreNotCountedByTheirMaxTokens) {
  // With room for four at their longest the pool runs all 64 at the length they have.
  std::vector<SimulatedCall> calls(512, {.prompt = 50, .output = 50, .max_tokens = 4096});
  std::vector<SimulatedCall> honest(512, {.prompt = 50, .output = 50});
  const SimulationResult small = Simulate(Options(1024), absl::MakeSpan(calls));
  const SimulationResult exact = Simulate(Options(1024), absl::MakeSpan(honest));
  EXPECT_EQ(small.num_preemptions, 0);
  EXPECT_LE(double(small.num_steps), double(exact.num_steps) * 1.2) << "once: nothing is known at the start";
  // From then on it costs nothing.
  std::vector<SimulatedCall> more(4096, {.prompt = 50, .output = 50, .max_tokens = 4096});
  std::vector<SimulatedCall> more_honest(4096, {.prompt = 50, .output = 50});
  EXPECT_LE(double(Simulate(Options(1024), absl::MakeSpan(more)).num_steps),
            double(Simulate(Options(1024), absl::MakeSpan(more_honest)).num_steps) * 1.03);
}

TEST(AdmissionSimulationTest, AnAmplePoolAdmitsEveryoneAtOnce) {
  std::vector<SimulatedCall> calls(64, {.prompt = 4, .output = 50, .max_tokens = 4096});
  Simulate(Options(64 * 257), absl::MakeSpan(calls));
  for (const SimulatedCall& call : calls) EXPECT_LT(call.first_token, 0.5);
}

TEST(AdmissionSimulationTest, OutputsThatBecomeLongerAreLearned) {
  std::vector<SimulatedCall> calls(256, {.prompt = 50, .output = 50, .max_tokens = 900});
  calls.insert(calls.end(), 128, {.prompt = 50, .output = 800, .max_tokens = 900});
  Simulate(Options(256), absl::MakeSpan(calls));
  int early_preemptions = 0, late_preemptions = 0;
  for (size_t i = 256; i < 320; ++i) early_preemptions += calls[i].num_preemptions;
  for (size_t i = 320; i < 384; ++i) late_preemptions += calls[i].num_preemptions;
  EXPECT_GT(early_preemptions, 0) << "nobody could know";
  EXPECT_LE(late_preemptions, early_preemptions / 3);
}

// Random pools, groups, lengths and arrivals: everyone ends, and hardly anything is computed twice where lengths are
// known. Simulate checks the books after every step.
TEST(AdmissionSimulationTest, NobodyIsForgottenWhateverComes) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 rng(seed);
    const auto uniform = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
    EngineOptions options = Options(0, std::vector<std::vector<AttentionMask>>{
                                           {kFull}, {kFull, kWindow}, {kWindow, kChunk}, {kChunk}}[size_t(rng() % 4)]);
    options.max_model_len = uniform(100, 2000);
    options.max_num_seqs = uniform(1, 64);
    options.max_num_batched_tokens = uniform(options.max_num_seqs, 512);
    options.num_blocks = int32_t(PeakBlocks(options.max_model_len, options)) * uniform(1, 8);
    std::vector<SimulatedCall> calls;
    double now = 0;
    for (int i = 0; i < 60; ++i) {
      SimulatedCall call{.arrival = now};
      call.prompt = uniform(1, options.max_model_len / 2);
      call.output = uniform(1, options.max_model_len - call.prompt);
      now += uniform(0, 3) * 0.1;
      calls.push_back(call);
    }
    const SimulationResult result = Simulate(options, absl::MakeSpan(calls));
    EXPECT_LE(ExtraRows(result, calls), 0.05) << "seed " << seed;
    for (const SimulatedCall& call : calls) ASSERT_GT(call.finish, call.arrival);
  }
}

}  // namespace
}  // namespace sluice
