// Steps that hold drafted tokens: whatever is drafted, a sequence gets the tokens that it gets without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/oracle_drafter.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::PromptOf;
using testing::OracleDrafter;
using testing::SchedulerHarness;
using testing::SmallOptions;

// Always as many as it may, the same ones.
class FixedDrafter : public TokenDrafter {
 public:
  explicit FixedDrafter(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  bool Wants(const Sequence&) override { return true; }
  void Draft(const Sequence&, int32_t max_tokens, std::vector<int32_t>* drafts) override {
    for (int32_t token : tokens_) {
      if (int32_t(drafts->size()) < max_tokens) drafts->push_back(token);
    }
  }

 private:
  const std::vector<int32_t> tokens_;
};

TEST(DraftsTest, EachDraftIsARowAndATokenIsDrawnBehindIt) {
  const Request request = PromptOf(5, 10);
  const std::vector<int32_t> expected = testing::ExpectedOutput(request, SmallOptions()).tokens;
  FixedDrafter drafter({expected[1], expected[2], 7});
  SchedulerHarness h(SmallOptions(), /*launches_async=*/false, &drafter);
  const SequenceId id = h.Add(request);
  h.Step();
  ASSERT_EQ(h.collected[id].tokens.size(), 1u);
  const StepStats stats = h.Step();
  EXPECT_THAT(h.plan.token_ids, ElementsAre(expected[0], expected[1], expected[2], 7));
  EXPECT_THAT(h.plan.positions, ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(h.plan.logits_rows, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(h.plan.samples.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(h.plan.samples[size_t(i)].position, 6 + i);
  EXPECT_EQ(stats.num_decode_tokens, 4);
  EXPECT_THAT(h.collected[id].tokens, ElementsAre(expected[0], expected[1], expected[2], expected[3]))
      << "two drafts were right, and a token was drawn behind them";
  EXPECT_EQ(h.scheduler.running()[0]->num_computed_tokens, 8);
}

TEST(DraftsTest, RightDraftsSaveSteps) {
  for (const bool ahead : {false, true}) {
    OracleDrafter drafter(SmallOptions(), /*one_wrong_in=*/0);
    SchedulerHarness h(SmallOptions(), ahead, &drafter);
    const Request request = PromptOf(5, 60);
    const SequenceId id = h.Add(request);
    drafter.Know(id, request);
    int steps = 0;
    for (; h.has_work(); ++steps) h.Step();
    EXPECT_LT(steps, 45);
    ExpectAsAlone(h.collected[id], request, h.options);
    EXPECT_EQ(h.scheduler.num_generation_tokens(), 60);
  }
}

TEST(DraftsTest, WhatOnlyWrongDraftsNeededGoesBackToThePool) {
  EngineOptions options = SmallOptions();
  FixedDrafter drafter({1, 2, 3, 4, 5, 6, 7});
  SchedulerHarness h(options, /*launches_async=*/false, &drafter);
  h.Add(PromptOf(3, 20));
  h.Step();
  h.Step();
  EXPECT_EQ(h.plan.context_lens[0], 11);
  EXPECT_EQ(h.scheduler.pool().num_live(), BlocksFor(5, options.block_size));
}

TEST(DraftsTest, NobodyIsPreemptedForADraft) {
  EngineOptions options = SmallOptions();
  options.num_blocks = 4;
  options.max_model_len = 16;
  options.admit_by_forecast = false;
  FixedDrafter drafter({1, 2, 3, 4, 5, 6, 7});
  SchedulerHarness h(options, /*launches_async=*/false, &drafter);
  const Request a = PromptOf(4, 4, 1), b = PromptOf(4, 4, 2);
  const SequenceId first = h.Add(a), second = h.Add(b);
  h.RunToEnd();
  EXPECT_EQ(h.scheduler.num_preemptions(), 0);
  ExpectAsAlone(h.collected[first], a, options);
  ExpectAsAlone(h.collected[second], b, options);
}

TEST(DraftsTest, NoneBehindTheLastTokenThatMaxTokensAllows) {
  FixedDrafter drafter({1, 2, 3});
  SchedulerHarness h(SmallOptions(), /*launches_async=*/false, &drafter);
  h.Add(PromptOf(5, 3));
  h.Step();
  h.Step();
  EXPECT_EQ(h.plan.num_tokens(), 2) << "the second token, and one draft for the third";
  h.RunToEnd();
}

TEST(DraftsTest, AStopAmongRightDraftsEndsTheSequenceThere) {
  Request request = PromptOf(5, 50);
  const std::vector<int32_t> drawn = testing::ExpectedOutput(request, SmallOptions()).tokens;
  request.sampling.stop_token_ids = {drawn[2]};
  FixedDrafter drafter({drawn[1], drawn[2], drawn[3], drawn[4]});
  SchedulerHarness h(SmallOptions(), /*launches_async=*/false, &drafter);
  const SequenceId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.collected[id].tokens.size(), 3u);
  ExpectAsAlone(h.collected[id], request, h.options);
  EXPECT_EQ(h.scheduler.pool().num_live(), 0);
}

TEST(DraftsTest, ASequenceWithDraftsInFlightWaitsAlone) {
  OracleDrafter drafter(SmallOptions(), /*one_wrong_in=*/3);
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true, &drafter);
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(PromptOf(4, 40, i));
    const SequenceId id = h.Add(requests.back());
    if (i == 0) drafter.Know(id, requests.back());
  }
  h.RunToEnd();
  for (size_t i = 0; i < requests.size(); ++i) ExpectAsAlone(h.collected[i + 1], requests[i], h.options);
  EXPECT_GT(drafter.num_drafts, 10);
  EXPECT_GT(h.runner.num_unknown_tokens, 100) << "the others had a row in every step";
}

}  // namespace
}  // namespace sluice
