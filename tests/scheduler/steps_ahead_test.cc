// Steps planned while the one before is in flight: what they assume, what they must not, and what becomes of rows that
// turn out to be too many.
#include <gtest/gtest.h>

#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using testing::PromptOf;
using testing::SchedulerHarness;
using testing::SmallOptions;

TEST(StepsAheadTest, TheTokenBeingDrawnIsARowOfTheNextStep) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  const Request request = PromptOf(5, 4);
  const SequenceId id = h.Add(request);
  h.Step();
  EXPECT_EQ(h.plan.num_tokens(), 5);
  EXPECT_EQ(h.plan.token_sources, std::vector<int32_t>(5, -1));
  EXPECT_TRUE(h.collected[id].tokens.empty());
  h.Step();
  EXPECT_EQ(h.plan.token_sources, std::vector<int32_t>{0});
  EXPECT_EQ(h.plan.positions, std::vector<int32_t>{5});
  EXPECT_EQ(h.plan.samples[0].position, 6);
  EXPECT_EQ(h.collected[id].tokens.size(), 1u) << "the first step is over";
  h.RunToEnd();
  EXPECT_EQ(h.runner.num_unknown_tokens, 3);
  ExpectAsAlone(h.collected[id], request, h.options);
}

TEST(StepsAheadTest, StaggeredSequencesGetWhatTheyGetAlone) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(PromptOf(1 + 7 * i % 50, 1 + 5 * i % 23, i));
    requests.back().sampling.ignore_eos = i % 2 == 0;
    requests.back().sampling.stop_token_ids = {i};
    h.Add(requests.back());
    h.Step();
  }
  h.RunToEnd();
  for (size_t i = 0; i < requests.size(); ++i) ExpectAsAlone(h.collected[i + 1], requests[i], h.options);
  EXPECT_GT(h.runner.num_unknown_tokens, 100);
}

TEST(StepsAheadTest, NobodyGetsARowBehindTheLastTokenThatMaxTokensAllows) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  h.Add(PromptOf(5, 2));
  int64_t rows = 0;
  while (h.has_work()) {
    const StepStats stats = h.Step();
    rows += stats.num_prefill_tokens + stats.num_decode_tokens;
  }
  EXPECT_EQ(rows, 6) << "five for the prompt, one for the first token; nothing follows the second";
}

TEST(StepsAheadTest, ARowTooManyOfASequenceThatStoppedIsDropped) {
  EngineOptions options = SmallOptions();
  Request request = PromptOf(5, 50);
  const std::vector<int32_t> drawn = testing::ExpectedOutput(request, options).tokens;
  request.sampling.stop_token_ids = {drawn[2]};
  SchedulerHarness h(options, /*launches_async=*/true);
  const SequenceId id = h.Add(request);
  int64_t rows = 0;
  while (!h.collected[id].finished()) {
    const StepStats stats = h.Step();
    rows += stats.num_prefill_tokens + stats.num_decode_tokens;
  }
  EXPECT_EQ(h.scheduler.num_steps_in_flight(), 1);
  EXPECT_EQ(h.scheduler.pool().num_live(), 0) << "the blocks are free while the row is still in flight";
  EXPECT_FALSE(h.scheduler.has_sequences());
  h.Step();
  EXPECT_FALSE(h.has_work());
  EXPECT_EQ(h.collected[id].tokens.size(), 3u);
  EXPECT_EQ(h.scheduler.num_generation_tokens(), 3);
  ExpectAsAlone(h.collected[id], request, options);
}

TEST(StepsAheadTest, APenaltyWaitsForTheTokensItCounts) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  Request request = PromptOf(5, 6);
  request.sampling.presence_penalty = 1;
  const SequenceId id = h.Add(request);
  const Request other_request = PromptOf(3, 9, 2);
  const SequenceId other = h.Add(other_request);
  h.now_ns++;
  ASSERT_TRUE(h.Launch());
  EXPECT_EQ(h.scheduler.Plan(h.now_ns), nullptr);
  h.Commit();
  EXPECT_TRUE(h.Launch());
  EXPECT_EQ(h.plan.token_sources, (std::vector<int32_t>{-1, -1}));
  h.RunToEnd();
  ExpectAsAlone(h.collected[id], request, h.options);
  ExpectAsAlone(h.collected[other], other_request, h.options);
}

TEST(StepsAheadTest, OnePenaltyAmongManyWaitsAlone) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(PromptOf(3, 40, i));
  requests[2].sampling.presence_penalty = 1;
  for (const Request& request : requests) h.Add(request);
  int64_t num_steps = 0;
  for (; h.has_work(); ++num_steps) {
    h.Step();
    if (h.collected[1].tokens.size() == 20) {
      EXPECT_GE(h.collected[3].tokens.size(), 9u) << "it has a row in every second step";
      EXPECT_EQ(h.collected[5].tokens.size(), 20u);
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) ExpectAsAlone(h.collected[i + 1], requests[i], h.options);
  EXPECT_GE(h.runner.num_unknown_tokens, 4 * 38) << "the others never waited";
}

TEST(StepsAheadTest, ChunksOfAPromptFollowOneAnotherAndItsReportsArriveOnce) {
  EngineOptions options = SmallOptions();
  options.max_num_batched_tokens = 8;
  SchedulerHarness h(options, /*launches_async=*/true);
  Request request = PromptOf(43, 5);
  request.sampling.prompt_logprobs = 2;
  request.sampling.presence_penalty = 1;  // counts no token before the first
  const SequenceId id = h.Add(request);
  ASSERT_TRUE(h.Launch());
  ASSERT_TRUE(h.Launch());
  EXPECT_EQ(h.plan.positions.front(), 8);
  h.Commit();
  h.RunToEnd();
  ExpectAsAlone(h.collected[id], request, options);
}

TEST(StepsAheadTest, PreemptionWaitsUntilNoStepIsInFlight) {
  EngineOptions options = SmallOptions();
  options.max_model_len = 64;
  options.num_blocks = 17;  // 16 for one sequence of 64 tokens
  SchedulerHarness h(options, /*launches_async=*/true);
  h.ExpectShortOutputs();
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(PromptOf(9, 50, i));
    requests.back().sampling.ignore_eos = false;
    ids.push_back(h.Add(requests.back()));
  }
  const int64_t num_unknown_tokens = h.runner.num_unknown_tokens;
  h.RunToEnd();  // the harness checks that no step is in flight
  EXPECT_GT(h.scheduler.num_preemptions(), 0);
  EXPECT_GT(h.runner.num_unknown_tokens - num_unknown_tokens, 20);
  for (size_t i = 0; i < requests.size(); ++i) ExpectAsAlone(h.collected[ids[i]], requests[i], options);
}

TEST(StepsAheadTest, ACancelTakesEffectWhileStepsAreInFlight) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  const SequenceId id = h.Add(PromptOf(20, 50, 1));
  const Request other_request = PromptOf(4, 30, 2);
  const SequenceId other = h.Add(other_request);
  for (int i = 0; i < 5; ++i) h.Step();
  const size_t num_tokens = h.collected[id].tokens.size();
  ASSERT_EQ(h.scheduler.num_steps_in_flight(), 1);
  h.Finish(id, FinishReason::kCancelled);
  EXPECT_EQ(h.scheduler.num_running(), 1);
  EXPECT_EQ(h.scheduler.pool().num_live(), h.scheduler.running()[0]->block_tables[0].size());
  const Request next_request = PromptOf(30, 9, 3);  // takes the blocks and the slot over
  const SequenceId next = h.Add(next_request);
  h.RunToEnd();
  EXPECT_EQ(h.collected[id].tokens.size(), num_tokens) << "what was in flight is dropped";
  EXPECT_EQ(h.collected[id].last.finish_reason, FinishReason::kCancelled);
  ExpectAsAlone(h.collected[other], other_request, h.options);
  ExpectAsAlone(h.collected[next], next_request, h.options);
}

TEST(StepsAheadTest, LogitsThatAreNotFiniteEndTheirSequenceAndNobodyElse) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  Request bad = PromptOf(4, 30, 1);
  bad.sampling.seed = testing::kNonfiniteSeed;
  const SequenceId bad_id = h.Add(bad);
  const Request good = PromptOf(4, 30, 2);
  const SequenceId good_id = h.Add(good);
  h.RunToEnd();
  EXPECT_EQ(h.collected[bad_id].last.finish_reason, FinishReason::kError);
  ExpectAsAlone(h.collected[bad_id], bad, h.options);
  ExpectAsAlone(h.collected[good_id], good, h.options);
}

TEST(StepsAheadTest, AbandonedStepsLeaveTheBooksInOrder) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  const SequenceId cancelled = h.Add(PromptOf(10, 30));
  h.Add(PromptOf(10, 30));
  ASSERT_TRUE(h.Launch());
  ASSERT_TRUE(h.Launch());
  h.Finish(cancelled, FinishReason::kCancelled);
  h.scheduler.AbandonSteps();
  std::vector<SequenceOutput> outputs;
  h.scheduler.FinishIf([](const Sequence&) { return true; }, FinishReason::kError, absl::InternalError("gone"), 2,
                       &outputs);
  EXPECT_EQ(outputs.size(), 1u);
  EXPECT_EQ(h.scheduler.pool().num_live(), 0);
  h.scheduler.CheckInvariants();
}

}  // namespace
}  // namespace sluice
