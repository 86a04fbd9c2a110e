#include "engine/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/error_reason.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::ExpectAsAlone;
using testing::ExpectedOutput;
using testing::MakeRequest;
using testing::PromptOf;
using testing::SchedulerHarness;
using testing::SmallOptions;

// One that may stop on its own, though it hardly will.
Request GrowingPromptOf(int32_t length, int32_t max_tokens, int32_t salt = 1) {
  Request request = PromptOf(length, max_tokens, salt);
  request.sampling.ignore_eos = false;
  return request;
}

// ---- Budget, chunks, order ----

TEST(SchedulerTest, ComputesALongPromptInChunksOfTheBudget) {
  SchedulerHarness h(SmallOptions());
  const Request request = PromptOf(100, 5);
  const SequenceId id = h.Add(request);
  std::vector<int32_t> rows;
  while (h.collected[id].tokens.empty()) {
    h.Step();
    rows.push_back(h.plan.num_tokens());
  }
  EXPECT_THAT(rows, ElementsAre(32, 32, 32, 4));
  h.RunToEnd();
  ExpectAsAlone(h.collected[id], request, h.options);
}

TEST(SchedulerTest, DecodesComeFirstAndAPromptTakesWhatRemains) {
  SchedulerHarness h(SmallOptions());
  const SequenceId a = h.Add(PromptOf(3, 20, 1));
  h.Step();
  const SequenceId b = h.Add(PromptOf(3, 20, 2));
  h.Step();
  h.Add(PromptOf(100, 20, 3));
  h.Step();
  EXPECT_THAT(h.plan.row_starts, ElementsAre(0, 1, 2, 32));
  const StepStats stats = h.Step();
  EXPECT_THAT(h.plan.row_starts, ElementsAre(0, 1, 2, 32));
  EXPECT_EQ(stats.num_decode_tokens, 2);
  EXPECT_EQ(stats.num_prefill_tokens, 30);
  EXPECT_EQ(h.collected[a].tokens.size(), 4u) << "a token in every step";
  EXPECT_EQ(h.collected[b].tokens.size(), 3u);
}

TEST(SchedulerTest, PromptsShareAStepInOrderOfArrival) {
  SchedulerHarness h(SmallOptions());
  h.Add(PromptOf(10, 4, 1));
  h.Add(PromptOf(15, 4, 2));
  h.Add(PromptOf(30, 4, 3));
  h.Step();
  EXPECT_THAT(h.plan.row_starts, ElementsAre(0, 10, 25, 32));
  h.Step();
  EXPECT_THAT(h.plan.row_starts, ElementsAre(0, 1, 2, 25)) << "two decodes, the rest of the third prompt";
}

TEST(SchedulerTest, BoundsPrefillBesideDecodesAndOnlyThere) {
  EngineOptions options = SmallOptions();
  options.max_prefill_tokens_beside_decodes = 8;
  SchedulerHarness h(options);
  h.Add(PromptOf(40, 4, 1));
  h.Step();
  EXPECT_EQ(h.plan.num_tokens(), 32) << "nobody to delay";
  h.Step();
  h.Add(PromptOf(6, 40, 2));
  h.Add(PromptOf(40, 40, 3));
  h.Step();
  EXPECT_THAT(h.plan.row_starts, ElementsAre(0, 1, 7, 9)) << "8 rows for all prompts together";
  h.Step();
  EXPECT_THAT(h.plan.row_starts, ElementsAre(0, 1, 2, 10));
}

TEST(SchedulerTest, PrefillBesideDecodesGetsAQuarterByDefault) {
  EngineOptions options = SmallOptions();
  options.max_prefill_tokens_beside_decodes = 0;
  options.max_num_batched_tokens = 400;
  options.max_model_len = 1000;
  options.num_blocks = 500;
  SchedulerHarness h(options);
  h.Add(PromptOf(10, 4, 1));
  h.Step();
  h.Add(PromptOf(900, 4, 2));
  h.Step();
  EXPECT_EQ(h.plan.num_tokens(), 1 + 100);
}

TEST(SchedulerTest, RunsNoMoreSequencesThanAllowed) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 3;
  SchedulerHarness h(options);
  for (int i = 0; i < 10; ++i) h.Add(PromptOf(2, 5, i));
  h.Step();
  EXPECT_EQ(h.scheduler.num_running(), 3);
  EXPECT_EQ(h.scheduler.num_waiting(), 7);
  EXPECT_EQ(h.scheduler.num_waiting_tokens(), 14);
  h.RunToEnd();
  EXPECT_EQ(h.collected.num_finished(), 10);
}

TEST(SchedulerTest, EverySequenceDecodesEachStepWithTheSmallestBudget) {
  EngineOptions options = SmallOptions();
  options.max_num_batched_tokens = options.max_num_seqs;
  SchedulerHarness h(options);
  for (int i = 0; i < options.max_num_seqs; ++i) h.Add(PromptOf(1, 6, i));
  for (int i = 0; i < 5; ++i) {
    h.Step();
    EXPECT_EQ(h.plan.num_tokens(), options.max_num_seqs);
  }
}

TEST(SchedulerTest, ASlotIsASequencesOwnWhileItRuns) {
  SchedulerHarness h(SmallOptions());
  h.Add(PromptOf(2, 2, 1));
  h.Add(PromptOf(2, 9, 2));
  h.Step();
  const int32_t slot = h.plan.seq_slots[1];
  h.Step();  // the first one ends
  h.Add(PromptOf(2, 9, 3));
  for (int i = 0; i < 4; ++i) {
    h.Step();
    EXPECT_EQ(h.plan.seq_slots[0], slot);
    EXPECT_NE(h.plan.seq_slots[1], slot);
  }
}

// ---- Admission and preemption ----

TEST(SchedulerTest, TwoPromptsTooLargeTogetherRunInTurn) {
  SchedulerHarness h(SmallOptions());  // 256 tokens in the pool
  const Request a = PromptOf(160, 20, 1);
  const Request b = PromptOf(160, 20, 2);
  const SequenceId id_a = h.Add(a);
  const SequenceId id_b = h.Add(b);
  h.RunToEnd(/*max_steps=*/2 * (5 + 20));
  EXPECT_EQ(h.scheduler.num_preemptions(), 0) << "admitted although it could not stay";
  ExpectAsAlone(h.collected[id_a], a, h.options);
  ExpectAsAlone(h.collected[id_b], b, h.options);
}

TEST(SchedulerTest, AdmissionLooksAtTheWholePromptNotAtItsFirstChunk) {
  SchedulerHarness h(SmallOptions());
  h.Add(PromptOf(200, 4, 1));  // 50 of 64 blocks
  h.Step();
  h.Add(PromptOf(60, 4, 2));  // 15 blocks, 14 are free; a chunk of it would fit
  h.Step();
  EXPECT_EQ(h.scheduler.num_running(), 1);
  EXPECT_EQ(h.scheduler.num_waiting(), 1);
  h.RunToEnd();
}

TEST(SchedulerTest, AdmissionLeavesRunningSequencesTheBlocksTheyWillGrowInto) {
  EngineOptions options = SmallOptions();
  options.num_blocks = 12;
  SchedulerHarness h(options);
  h.Add(PromptOf(16, 20, 1));  // 4 blocks, 9 in the end
  h.Step();
  h.Add(PromptOf(9, 3, 2));  // 3 blocks, and gone before the first grows into them
  h.Step();
  EXPECT_EQ(h.scheduler.num_running(), 2);
  h.Add(PromptOf(5, 30, 3));  // 2 blocks, but 6 when the first has its 9
  h.Step();
  EXPECT_EQ(h.scheduler.num_running(), 2);
  h.RunToEnd();
  EXPECT_EQ(h.scheduler.num_preemptions(), 0);
}

TEST(SchedulerTest, NoSmallRequestOvertakesABigOne) {
  SchedulerHarness h(SmallOptions());
  h.Add(PromptOf(200, 30, 1));
  h.Step();
  const SequenceId big = h.Add(PromptOf(200, 30, 2));
  std::vector<SequenceId> small;
  for (int i = 0; i < 5; ++i) small.push_back(h.Add(PromptOf(2, 2, 3 + i)));
  h.RunToEnd();
  for (SequenceId id : small) {
    EXPECT_GE(h.collected[id].last.timings.first_scheduled_ns, h.collected[big].last.timings.first_scheduled_ns);
  }
}

class PreemptionTest : public ::testing::Test {
 protected:
  static EngineOptions Options() {
    EngineOptions options = SmallOptions();
    options.num_blocks = 12;  // 48 tokens
    return options;
  }
  PreemptionTest() { h_.ExpectShortOutputs(); }
  SchedulerHarness h_{Options()};
};

TEST_F(PreemptionTest, TheNewestMakesRoomAndContinuesWithTheSameTokens) {
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(GrowingPromptOf(6, 30, i + 1));
    requests.back().sampling.logprobs = 0;
    ids.push_back(h_.Add(requests.back()));
  }
  h_.RunToEnd();
  EXPECT_GT(h_.scheduler.num_preemptions(), 0);
  EXPECT_EQ(h_.collected[ids[0]].last.num_preemptions, 0) << "the oldest is never preempted";
  EXPECT_GT(h_.collected[ids[2]].last.num_preemptions, 0);
  for (int i = 0; i < 3; ++i) ExpectAsAlone(h_.collected[ids[i]], requests[i], h_.options);
}

TEST_F(PreemptionTest, APreemptedSequenceIsFirstInTheQueueAndKeepsItsTokens) {
  const SequenceId a = h_.Add(GrowingPromptOf(20, 28, 1));
  const SequenceId b = h_.Add(GrowingPromptOf(14, 30, 2));
  h_.Step();
  const SequenceId c = h_.Add(GrowingPromptOf(4, 4, 3));
  while (h_.scheduler.num_preemptions() == 0) h_.Step();
  ASSERT_EQ(h_.scheduler.waiting().size(), 2u);
  EXPECT_EQ(h_.scheduler.waiting()[0]->id, b);
  EXPECT_EQ(h_.scheduler.waiting()[1]->id, c);
  EXPECT_EQ(h_.scheduler.waiting()[0]->num_output_tokens(), int32_t(h_.collected[b].tokens.size()));
  EXPECT_GT(h_.scheduler.waiting()[0]->num_output_tokens(), 0);
  h_.RunToEnd();
  EXPECT_EQ(h_.collected[a].last.num_preemptions, 0);
  EXPECT_TRUE(h_.collected[b].finished() && h_.collected[c].finished());
}

TEST_F(PreemptionTest, DeliversEveryPromptLogprobOnce) {
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(GrowingPromptOf(9 + i, 24, i + 1));
    requests.back().sampling.prompt_logprobs = 3;
    ids.push_back(h_.Add(requests.back()));
  }
  h_.RunToEnd();
  EXPECT_GT(h_.scheduler.num_preemptions(), 0);
  for (int i = 0; i < 4; ++i) ExpectAsAlone(h_.collected[ids[i]], requests[i], h_.options);
}

TEST_F(PreemptionTest, InTheMiddleOfItsPromptLosesNoPromptLogprob) {
  EngineOptions options = Options();
  options.max_num_batched_tokens = 8;
  options.max_prefill_tokens_beside_decodes = 1;
  SchedulerHarness h(options);
  h.ExpectShortOutputs();
  const SequenceId a = h.Add(GrowingPromptOf(8, 40, 1));
  h.Step();
  Request request = GrowingPromptOf(24, 2, 2);
  request.sampling.prompt_logprobs = 0;
  const SequenceId b = h.Add(request);
  h.RunToEnd();
  EXPECT_GT(h.collected[b].last.num_preemptions, 0);
  ExpectAsAlone(h.collected[b], request, options);
  EXPECT_EQ(h.collected[a].last.num_preemptions, 0);
}

TEST_F(PreemptionTest, CountsPromptTokensOnce) {
  const int64_t num_prompt_tokens = h_.scheduler.num_prompt_tokens();
  const int64_t num_generation_tokens = h_.scheduler.num_generation_tokens();
  for (int i = 0; i < 3; ++i) h_.Add(GrowingPromptOf(6, 30, i + 1));
  h_.RunToEnd();
  EXPECT_GT(h_.scheduler.num_preemptions(), 0);
  EXPECT_EQ(h_.scheduler.num_prompt_tokens() - num_prompt_tokens, 18);
  EXPECT_EQ(h_.scheduler.num_generation_tokens() - num_generation_tokens, 90);
}

TEST_F(PreemptionTest, KeepsTheFirstMomentsItHad) {
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(h_.Add(GrowingPromptOf(6, 30, i + 1)));
  h_.Step();
  const int64_t after_first_step_ns = h_.now_ns;
  h_.RunToEnd();
  const SequenceOutput& last = h_.collected[ids[2]].last;
  ASSERT_GT(last.num_preemptions, 0);
  EXPECT_LE(last.timings.first_scheduled_ns, after_first_step_ns);
  EXPECT_EQ(last.timings.first_token_ns, after_first_step_ns);
}

TEST_F(PreemptionTest, ARequestThatNeedsTheWholePoolRunsInACrowd) {
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(i % 2 == 0 ? GrowingPromptOf(1, 48, i + 1) : GrowingPromptOf(47, 2, i + 1));
    ids.push_back(h_.Add(requests.back()));
  }
  h_.RunToEnd();
  for (int i = 0; i < 6; ++i) ExpectAsAlone(h_.collected[ids[i]], requests[i], h_.options);
}

// ---- What a request gets ----

TEST(SchedulerTest, TheSameRequestTwiceGetsTheSamePromptLogprobs) {
  SchedulerHarness h(SmallOptions());
  Request request = PromptOf(50, 3);
  request.sampling.prompt_logprobs = 1;
  const SequenceId first = h.Add(request);
  h.RunToEnd();
  const SequenceId second = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(h.collected[first].prompt_logprobs.size(), 49u);
  EXPECT_EQ(h.collected[second].prompt_logprobs, h.collected[first].prompt_logprobs);
}

TEST(SchedulerTest, PenaltiesSeeTheirOwnOutputsOnly) {
  SchedulerHarness h(SmallOptions());
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(PromptOf(5 + i, 20, i + 1));
    requests.back().sampling.presence_penalty = i == 3 ? 2 : 0;
    ids.push_back(h.Add(requests.back()));
  }
  h.RunToEnd();
  for (int i = 0; i < 6; ++i) ExpectAsAlone(h.collected[ids[i]], requests[i], h.options);
}

TEST(SchedulerTest, APromptThatLeavesRoomForOneTokenGetsOne) {
  SchedulerHarness h(SmallOptions());
  const SequenceId id = h.Add(PromptOf(255, 1));
  h.RunToEnd();
  EXPECT_EQ(h.collected[id].tokens.size(), 1u);
  EXPECT_EQ(h.collected[id].last.finish_reason, FinishReason::kLength);
}

TEST(SchedulerTest, LogitsWithoutAFiniteValueEndThatRequestAndNoOther) {
  SchedulerHarness h(SmallOptions());
  const Request good = PromptOf(5, 12, 1);
  Request bad = PromptOf(5, 12, 2);
  bad.sampling.seed = testing::kNonfiniteSeed;
  const SequenceId id_bad = h.Add(bad);
  const SequenceId id_good = h.Add(good);
  h.RunToEnd();
  const testing::Collected& c = h.collected[id_bad];
  EXPECT_EQ(c.last.finish_reason, FinishReason::kError);
  EXPECT_EQ(c.last.error.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(c.last.error), kReasonNonfiniteLogits);
  EXPECT_EQ(c.tokens, ExpectedOutput(bad, h.options).tokens) << "what came before stays";
  EXPECT_EQ(c.tokens.size(), 2u);
  ExpectAsAlone(h.collected[id_good], good, h.options);
}

// ---- Cancel and deadline ----

// Brings a sequence with a prompt of 60 into the queue, the middle of its prompt, or the middle of its output.
enum class Moment { kQueued, kPrefill, kDecode };

class MomentTest : public ::testing::TestWithParam<Moment> {
 protected:
  static EngineOptions Options() {
    EngineOptions options = SmallOptions();
    options.max_num_seqs = GetParam() == Moment::kQueued ? 1 : 2;
    return options;
  }
  MomentTest() : h_(Options()) {
    other_ = h_.Add(other_request_);
    h_.Step();
    Request request = PromptOf(60, 50, 2);
    request.deadline_ns = 2000;
    id_ = h_.Add(request);
    while (!Reached()) h_.Step();
  }
  bool Reached() {
    if (GetParam() == Moment::kQueued) return h_.scheduler.num_waiting() == 1;
    if (h_.scheduler.num_running() < 2) return false;
    const Sequence& s = *h_.scheduler.running()[1];
    return GetParam() == Moment::kPrefill ? s.num_computed_tokens > 0 && s.num_computed_tokens < 60
                                          : s.num_output_tokens() == 3;
  }
  void ExpectGone(FinishReason reason) {
    EXPECT_EQ(h_.collected[id_].last.finish_reason, reason);
    EXPECT_EQ(h_.collected[id_].last.timings.finish_ns, h_.now_ns);
    EXPECT_EQ(h_.scheduler.num_running(), 1);
    EXPECT_EQ(h_.scheduler.num_waiting(), 0);
    EXPECT_EQ(h_.scheduler.num_waiting_tokens(), 0);
    EXPECT_EQ(h_.scheduler.pool().num_live(), h_.scheduler.running()[0]->block_tables[0].size());
    h_.RunToEnd();
    ExpectAsAlone(h_.collected[other_], other_request_, h_.options);
    EXPECT_EQ(h_.scheduler.pool().num_live(), 0);
  }

  SchedulerHarness h_;
  const Request other_request_ = PromptOf(4, 100, 1);
  SequenceId other_ = 0;
  SequenceId id_ = 0;
};

TEST_P(MomentTest, ACancelFreesTheBlocksAtOnce) {
  h_.Finish(id_, FinishReason::kCancelled);
  ExpectGone(FinishReason::kCancelled);
}

TEST_P(MomentTest, ACancelCarriesItsReason) {
  h_.Finish(id_, FinishReason::kStopSequence);
  ExpectGone(FinishReason::kStopSequence);
}

TEST_P(MomentTest, ACancelOfSomebodyUnknownOrGoneDoesNothing) {
  h_.Finish(id_ + 100, FinishReason::kCancelled);
  EXPECT_EQ(h_.collected.num_finished(), 0);
  h_.Finish(id_, FinishReason::kCancelled);
  h_.Finish(id_, FinishReason::kCancelled);
  EXPECT_EQ(h_.collected.num_finished(), 1);
  ExpectGone(FinishReason::kCancelled);
}

TEST_P(MomentTest, ADeadlineEndsItAsDeadlineAndNotAsLength) {
  h_.now_ns = 1999;
  h_.FinishExpired();
  EXPECT_EQ(h_.collected.num_finished(), 0);
  h_.now_ns = 2000;
  h_.FinishExpired();
  ExpectGone(FinishReason::kDeadline);
}

INSTANTIATE_TEST_SUITE_P(Moments, MomentTest, ::testing::Values(Moment::kQueued, Moment::kPrefill, Moment::kDecode),
                         [](const auto& info) {
                           return info.param == Moment::kQueued    ? "Queued"
                                  : info.param == Moment::kPrefill ? "Prefill"
                                                                   : "Decode";
                         });

TEST(SchedulerTest, DeadlinesOfManyComeInTheirOrder) {
  SchedulerHarness h(SmallOptions());
  std::vector<SequenceId> ids;
  for (int64_t deadline : {5000, 3000, 4000}) {
    Request request = PromptOf(4, 100, 1);
    request.deadline_ns = deadline;
    ids.push_back(h.Add(request));
  }
  h.Step();
  for (int64_t t : {3000, 4000, 5000}) {
    h.now_ns = t - 1;
    h.FinishExpired();
    const int before = h.collected.num_finished();
    h.now_ns = t;
    h.FinishExpired();
    EXPECT_EQ(h.collected.num_finished(), before + 1);
  }
  EXPECT_EQ(h.collected[ids[1]].last.timings.finish_ns, 3000);
  EXPECT_EQ(h.collected[ids[0]].last.timings.finish_ns, 5000);
}

// ---- Books ----

TEST(SchedulerTest, TimingsAndCountsComeWithTheLastOutput) {
  SchedulerHarness h(SmallOptions());
  h.now_ns = 5000;
  const SequenceId id = h.Add(PromptOf(40, 3));
  h.Step();  // 5001 to 5002, first chunk
  h.Step();  // 5003 to 5004, first token
  h.RunToEnd();
  const SequenceOutput& last = h.collected[id].last;
  EXPECT_EQ(last.timings.arrival_ns, 5000);
  EXPECT_EQ(last.timings.first_scheduled_ns, 5001);
  EXPECT_EQ(last.timings.first_token_ns, 5004);
  EXPECT_EQ(last.timings.finish_ns, 5008);
  EXPECT_EQ(last.num_prompt_tokens, 40);
  EXPECT_EQ(last.num_cached_tokens, 0);
  EXPECT_EQ(last.num_preemptions, 0);
  EXPECT_EQ(h.scheduler.num_prompt_tokens(), 40);
  EXPECT_EQ(h.scheduler.num_generation_tokens(), 3);
}

TEST(SchedulerTest, ACancelledPromptIsNotCountedAsComputed) {
  SchedulerHarness h(SmallOptions());
  const SequenceId id = h.Add(PromptOf(40, 3));
  h.Step();
  h.Finish(id, FinishReason::kCancelled);
  EXPECT_EQ(h.scheduler.num_prompt_tokens(), 0);
}

TEST(SchedulerTest, TheContextComesWithEveryOutputAndLeavesWithTheLast) {
  EngineOptions options = SmallOptions();
  Scheduler scheduler(options);
  testing::HashRunner runner(options);
  auto context = std::make_shared<int>(42);
  const std::weak_ptr<int> watch = context;
  Request request = PromptOf(3, 3);
  request.context = std::move(context);
  scheduler.Add(1, 1, std::move(request), 0);
  std::vector<SequenceOutput> outputs;
  for (int i = 0; i < 3; ++i) {
    outputs.clear();
    scheduler.Commit(*runner.Run(*scheduler.Plan(0)), 0, &outputs);
    ASSERT_EQ(outputs.size(), 1u);
    EXPECT_EQ(outputs[0].context, watch.lock());
  }
  EXPECT_EQ(watch.use_count(), 1) << "the last output holds the only reference";
  outputs.clear();
  EXPECT_TRUE(watch.expired());
}

TEST(SchedulerTest, AnAbandonedStepLeavesTheBooksInOrder) {
  SchedulerHarness h(SmallOptions());
  h.Add(PromptOf(40, 3));
  h.scheduler.Plan(1);
  h.scheduler.AbandonSteps();
  std::vector<SequenceOutput> outputs;
  h.scheduler.FinishIf([](const Sequence&) { return true; }, FinishReason::kError, absl::InternalError("gone"), 2,
                       &outputs);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].error.message(), "gone");
  EXPECT_EQ(h.scheduler.pool().num_live(), 0);
  h.scheduler.CheckInvariants();
}

}  // namespace
}  // namespace sluice
