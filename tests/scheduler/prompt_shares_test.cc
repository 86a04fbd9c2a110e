// Who gets how many of a step's prompt rows, and what that means for calls that arrive while long prompts are computed:
// in simulated time, over many arrivals.
#include "engine/scheduler/prompt_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tests/scheduler/scheduler_harness.h"
#include "tests/scheduler/simulation.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::MakeRequest;
using testing::SimulatedCall;
using testing::Simulate;
using testing::SmallOptions;

std::vector<int32_t> Deal(const std::vector<int32_t>& remaining, int32_t budget) {
  EngineOptions options = SmallOptions();
  BlockPool pool(options.num_blocks);
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> prompts;
  for (int32_t n : remaining) {
    owned.push_back(std::make_unique<Sequence>(owned.size() + 1, MakeRequest(std::vector<int32_t>(size_t(n), 1), 1),
                                               options, &pool, 0));
    prompts.push_back(owned.back().get());
  }
  DividePromptRows(absl::MakeSpan(prompts), budget);
  std::vector<int32_t> rows;
  for (const Sequence* s : prompts) rows.push_back(s->num_scheduled_tokens);
  return rows;
}

TEST(PromptSharesTest, ThePromptThatLacksFewestRowsComesFirst) {
  EXPECT_THAT(Deal({1000, 300, 40, 20}, 100), ElementsAre(25, 15, 40, 20));
  EXPECT_THAT(Deal({1000, 30, 40, 20}, 100), ElementsAre(25, 30, 25, 20));
}

TEST(PromptSharesTest, TheOldestGetsItsQuarterAndWhatNobodyElseWants) {
  EXPECT_THAT(Deal({1000, 900, 900}, 100), ElementsAre(25, 75, 0));
  EXPECT_THAT(Deal({1000, 20}, 100), ElementsAre(80, 20));
  EXPECT_THAT(Deal({1000}, 100), ElementsAre(100));
  EXPECT_THAT(Deal({10, 1000}, 100), ElementsAre(10, 90));
  EXPECT_THAT(Deal({1000, 1}, 1), ElementsAre(1, 0)) << "a quarter is at least a row";
}

TEST(PromptSharesTest, EqualsAreServedInOrderOfArrival) {
  EXPECT_THAT(Deal({50, 50, 50}, 110), ElementsAre(50, 50, 10));
}

TEST(PromptSharesTest, AllRowsAreDealtAndAtMostTwoPromptsAreCut) {
  std::mt19937 rng(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<int32_t> remaining(1 + rng() % 12);
    for (int32_t& n : remaining) n = 1 + int32_t(rng() % (rng() % 4 == 0 ? 200 : 20));
    const int32_t budget = int32_t(rng() % 256);
    const std::vector<int32_t> rows = Deal(remaining, budget);
    int64_t dealt = 0, wanted = 0;
    int num_cut = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      ASSERT_GE(rows[p], 0);
      ASSERT_LE(rows[p], remaining[p]);
      dealt += rows[p];
      wanted += remaining[p];
      num_cut += rows[p] > 0 && rows[p] < remaining[p];
    }
    ASSERT_EQ(dealt, std::min<int64_t>(budget, wanted));
    ASSERT_LE(num_cut, 2);
    ASSERT_GE(rows[0], std::min(remaining[0], (budget + 3) / 4));
  }
}

// ---- In simulated time ----

// The default limits, and room for everyone.
EngineOptions ServerOptions() {
  EngineOptions options;
  options.max_model_len = 8192;
  options.vocab_size = 1000;
  options.eos_token_ids = {999};
  options.num_blocks = 64 * 512;
  return options;
}

TEST(PromptSharesSimulationTest, SmallCallsDoNotWaitForLongPrompts) {
  for (const int num_long : {1, 3}) {
    std::vector<SimulatedCall> calls(size_t(num_long), SimulatedCall{.arrival = 0, .prompt = 8000, .output = 5});
    for (int i = 0; i < 8; ++i) calls.push_back({.arrival = 0.1 + 0.5 * i, .prompt = 5 + i, .output = 10});
    Simulate(ServerOptions(), absl::MakeSpan(calls));
    for (size_t i = size_t(num_long); i < calls.size(); ++i) {
      // The rest of a step of 512 rows, and one more.
      EXPECT_LT(calls[i].time_to_first_token(), 2 * (0.004 + 0.512)) << num_long << " long, small call " << i;
    }
    for (int i = 0; i < num_long; ++i) EXPECT_LT(calls[size_t(i)].finish, 10.0 * num_long);
  }
}

TEST(PromptSharesSimulationTest, ABurstOfNewcomersIsServedShortestFirst) {
  std::vector<SimulatedCall> calls = {{.arrival = 0, .prompt = 8000, .output = 1}};
  for (int i = 0; i < 40; ++i) calls.push_back({.arrival = 0.1, .prompt = 10 + 37 * i % 41 * 20, .output = 1});
  Simulate(ServerOptions(), absl::MakeSpan(calls));
  for (const SimulatedCall& a : calls) {
    for (const SimulatedCall& b : calls) {
      if (a.prompt >= b.prompt || &b == &calls[0]) continue;
      EXPECT_LE(a.first_token, b.first_token);
    }
  }
}

// Poisson arrivals of small calls that keep the engine busy for a part `load` of the time when they are alone.
std::vector<SimulatedCall> SmallCalls(double load, double until, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<SimulatedCall> calls;
  double work = 0, now = 0;
  while (now < until) {
    SimulatedCall call{.arrival = now, .prompt = 5 + int32_t(rng() % 200), .output = 1 + int32_t(rng() % 8)};
    const double seconds = (call.prompt + call.output) * 1e-3 + 4e-3 * call.output;  // alone
    work += seconds;
    now += -std::log(1 - double(rng() % 1000000) * 1e-6) * seconds / load;
    calls.push_back(call);
  }
  return calls;
}

TEST(PromptSharesSimulationTest, ALongPromptBesideSmallCallsEndsInTime) {
  std::vector<SimulatedCall> alone = {{.arrival = 0, .prompt = 8000, .output = 4}};
  Simulate(ServerOptions(), absl::MakeSpan(alone));
  const double T = alone[0].duration();
  for (const double load : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      std::vector<SimulatedCall> calls = SmallCalls(load, 20 + 1.3 * T / (1 - load), seed);
      const auto at = std::find_if(calls.begin(), calls.end(), [](const SimulatedCall& c) { return c.arrival > 20; });
      const size_t index = size_t(at - calls.begin());
      calls.insert(at, {.arrival = 20, .prompt = 8000, .output = 4});
      Simulate(ServerOptions(), absl::MakeSpan(calls));
      EXPECT_LT(calls[index].duration(), 1.3 * T / (1 - load)) << "load " << load << ", seed " << seed;
    }
  }
}

TEST(PromptSharesSimulationTest, NobodyStarvesUnderMoreThanTheEngineCanDo) {
  std::vector<SimulatedCall> calls = {{.arrival = 0, .prompt = 8000, .output = 1}};
  // 2.6 times as much.
  for (int i = 0; i < 600; ++i) calls.push_back({.arrival = 0.05 * i, .prompt = 128, .output = 1});
  EngineOptions options = ServerOptions();
  Simulate(options, absl::MakeSpan(calls));
  EXPECT_LT(calls[0].finish, 4 * 8.2) << "a quarter of the rows, whatever comes";
}

}  // namespace
}  // namespace sluice
