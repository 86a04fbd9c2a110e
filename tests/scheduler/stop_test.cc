// What ends a sequence: end tokens, stop tokens, max_tokens; and min_tokens, which holds the first two back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using testing::ExpectAsAlone;
using testing::MakeRequest;
using testing::SchedulerHarness;
using testing::SmallOptions;

class StopTest : public ::testing::Test {
 protected:
  static EngineOptions Options() {
    EngineOptions options = SmallOptions();
    options.vocab_size = 8;  // so that every token soon comes
    options.eos_token_ids = {6, 7};
    return options;
  }
  static Request ShortVocabulary(int32_t seed, int32_t max_tokens) {
    Request request = MakeRequest({1, 2, 3}, max_tokens);
    request.sampling.seed = uint64_t(seed);
    request.sampling.ignore_eos = false;
    return request;
  }
  // Runs `request` to its end.
  testing::Collected Run(const Request& request) {
    const SequenceId id = h_.Add(request);
    h_.RunToEnd();
    ExpectAsAlone(h_.collected[id], request, h_.options);
    return h_.collected[id];
  }
  SchedulerHarness h_{Options()};
};

TEST_F(StopTest, EitherEndTokenOfTheModelStops) {
  std::vector<bool> seen(8, false);
  for (int seed = 0; seed < 40; ++seed) {
    const testing::Collected c = Run(ShortVocabulary(seed, 50));
    EXPECT_EQ(c.last.finish_reason, FinishReason::kStop);
    EXPECT_EQ(c.last.stop_token, c.tokens.back());
    seen[c.last.stop_token] = true;
  }
  EXPECT_TRUE(seen[6] && seen[7]);
}

TEST_F(StopTest, MinTokensHoldsEveryEndAndStopTokenBack) {
  for (int seed = 0; seed < 40; ++seed) {
    Request request = ShortVocabulary(seed, 50);
    request.sampling.min_tokens = 12;
    request.sampling.stop_token_ids = {0, 1};
    const testing::Collected c = Run(request);
    ASSERT_GT(c.tokens.size(), 12u);
    for (int i = 0; i < 12; ++i) EXPECT_THAT(c.tokens[i], ::testing::AllOf(::testing::Ge(2), ::testing::Le(5)));
  }
}

TEST_F(StopTest, MinTokensEqualToMaxTokensEndsByLength) {
  Request request = ShortVocabulary(1, 10);
  request.sampling.min_tokens = 10;
  const testing::Collected c = Run(request);
  EXPECT_EQ(c.tokens.size(), 10u);
  EXPECT_EQ(c.last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(c.last.stop_token, -1);
}

TEST_F(StopTest, IgnoreEosLeavesStopTokensInForce) {
  for (int seed = 0; seed < 20; ++seed) {
    Request request = ShortVocabulary(seed, 200);
    request.sampling.ignore_eos = true;
    request.sampling.stop_token_ids = {7};
    const testing::Collected c = Run(request);
    EXPECT_EQ(c.last.finish_reason, FinishReason::kStopSequence);
    EXPECT_EQ(c.last.stop_token, 7);
  }
}

TEST_F(StopTest, AnEndTokenAtMaxTokensFinishesAsStop) {
  for (int seed = 0; seed < 40; ++seed) {
    const testing::Collected free_run = Run(ShortVocabulary(seed, 50));
    const testing::Collected exact = Run(ShortVocabulary(seed, int32_t(free_run.tokens.size())));
    EXPECT_EQ(exact.tokens, free_run.tokens);
    EXPECT_EQ(exact.last.finish_reason, FinishReason::kStop);
  }
}

TEST_F(StopTest, EndTokensListedAsStopsAreEnds) {
  Request request = ShortVocabulary(1, 50);
  request.sampling.stop_token_ids = {6, 7};
  EXPECT_EQ(Run(request).last.finish_reason, FinishReason::kStop);
}

}  // namespace
}  // namespace sluice
