// Sequences that may not say everything: allowed_token_ids and TokenConstraint in the scheduler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "engine/error_reason.h"
#include "tests/scheduler/automaton_constraint.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Automaton;
using testing::AutomatonConstraint;
using testing::PromptOf;
using testing::SchedulerHarness;
using testing::SmallOptions;

constexpr int32_t kEos = 999;  // one of SmallOptions

// One of each set after the other, and nothing behind the last; the states of `complete` are the numbers of tokens after which
// the output may end.
std::shared_ptr<const TokenConstraint> Chain(std::vector<std::vector<int32_t>> sets, std::vector<int32_t> complete) {
  auto automaton = std::make_shared<Automaton>();
  const size_t vocab_size = size_t(SmallOptions().vocab_size);
  for (size_t state = 0; state <= sets.size(); ++state) {
    automaton->next.emplace_back(vocab_size, Automaton::kNone);
    automaton->complete.push_back(std::ranges::count(complete, int32_t(state)) > 0);
    if (state == sets.size()) break;
    for (int32_t token : sets[state]) automaton->next[state][size_t(token)] = int32_t(state) + 1;
  }
  return std::make_shared<AutomatonConstraint>(automaton);
}

// One of `tokens`, for ever.
std::shared_ptr<const TokenConstraint> Loop(std::initializer_list<int32_t> tokens) {
  auto automaton = std::make_shared<Automaton>();
  automaton->next.emplace_back(size_t(SmallOptions().vocab_size), Automaton::kNone);
  for (int32_t token : tokens) automaton->next[0][size_t(token)] = 0;
  automaton->complete.push_back(false);
  return std::make_shared<AutomatonConstraint>(automaton);
}

Request Constrained(std::shared_ptr<const TokenConstraint> constraint, int32_t max_tokens = 10, int32_t salt = 1) {
  Request request = PromptOf(3, max_tokens, salt);
  request.constraint = std::move(constraint);
  return request;
}

std::vector<int32_t> Tokens(std::span<const uint32_t> bitmask) {
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < SmallOptions().vocab_size; ++token) {
    if (HasToken(bitmask, token)) tokens.push_back(token);
  }
  return tokens;
}

TEST(ConstraintTest, EachRowHasTheMaskOfItsOwnSequence) {
  SchedulerHarness h(SmallOptions());
  h.Add(PromptOf(3, 5, 1));
  Request allowed = PromptOf(3, 5, 2);
  allowed.sampling.allowed_token_ids = {70, 5, 999, 5};
  h.Add(allowed);
  h.Add(Constrained(Chain({{1, 2}, {3}}, {2})));
  Request both = Constrained(Loop({5, 6, 70}));
  both.sampling.allowed_token_ids = {5, 8, 70};
  h.Add(both);
  h.Launch();
  const std::vector<SampleEntry>& rows = h.plan.samples;
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(rows[0].allowed_tokens.empty()) << "no mask is no work";
  EXPECT_THAT(Tokens(rows[1].allowed_tokens), ElementsAre(5, 70, 999)) << "an end token only because it was named";
  EXPECT_THAT(Tokens(rows[2].allowed_tokens), ElementsAre(1, 2));
  EXPECT_THAT(Tokens(rows[3].allowed_tokens), ElementsAre(5, 70));
  h.Commit();
  h.RunToEnd();
}

TEST(ConstraintTest, TheEndTokenComesWhereTheOutputIsComplete) {
  Request request = Constrained(Chain({{1}, {2, 3}, {4, 5}}, {2}));
  request.sampling.ignore_eos = false;
  request.sampling.stop_token_ids = {500};
  SchedulerHarness h(SmallOptions());
  h.Add(request);
  h.Launch();
  EXPECT_THAT(Tokens(h.plan.samples[0].allowed_tokens), ElementsAre(1));
  h.Commit();
  h.Launch();
  EXPECT_THAT(Tokens(h.plan.samples[0].allowed_tokens), ElementsAre(2, 3));
  h.Commit();
  h.Launch();
  EXPECT_THAT(Tokens(h.plan.samples[0].allowed_tokens), ElementsAre(4, 5, 500, 998, 999));
  h.Commit();
}

TEST(ConstraintTest, AFinishedOutputEndsWithoutAnEndToken) {
  for (const int32_t min_tokens : {0, 5}) {
    for (const int32_t max_tokens : {2, 10}) {
      Request request = Constrained(Chain({{1}, {2}}, {2}), max_tokens);
      request.sampling.min_tokens = std::min(min_tokens, max_tokens);
      request.sampling.ignore_eos = false;
      SchedulerHarness h(SmallOptions());
      const SequenceId id = h.Add(request);
      h.RunToEnd();
      EXPECT_THAT(h.collected[id].tokens, ElementsAre(1, 2));
      EXPECT_EQ(h.collected[id].last.finish_reason, FinishReason::kStop);
      EXPECT_EQ(h.collected[id].last.stop_token, -1);
      ExpectAsAlone(h.collected[id], request, h.options);
    }
  }
}

TEST(ConstraintTest, ASequenceThatMayFinishCountsAsOneThatStopsEarly) {
  SchedulerHarness h(SmallOptions());
  h.Add(PromptOf(3, 5));
  h.Add(Constrained(Loop({1})));
  EXPECT_FALSE(h.scheduler.waiting()[0]->can_stop_early());
  EXPECT_TRUE(h.scheduler.waiting()[1]->can_stop_early());
  h.RunToEnd();
}

TEST(ConstraintTest, MinTokensKeepsTheEndTokenBack) {
  Request request = Constrained(Chain({{1}, {2}, {3}, {4}}, {1, 2, 3}), 4);
  request.sampling.ignore_eos = false;
  request.sampling.min_tokens = 3;
  SchedulerHarness h(SmallOptions());
  const SequenceId id = h.Add(request);
  h.RunToEnd();
  const std::vector<int32_t>& tokens = h.collected[id].tokens;
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_THAT(tokens, ElementsAre(1, 2, 3, AnyOf(4, 998, 999)));
  ExpectAsAlone(h.collected[id], request, h.options);
}

TEST(ConstraintTest, WhereNothingMayComeTheSequenceEndsWithATypedErrorAndTheOthersGoOn) {
  for (const bool ahead : {false, true}) {
    SchedulerHarness h(SmallOptions(), ahead);
    const Request other = PromptOf(5, 20, 7);
    const SequenceId first = h.Add(other), stuck = h.Add(Constrained(Chain({{1}, {2}}, {}))), last = h.Add(other);
    Request disjoint = Constrained(Loop({1, 2}));
    disjoint.sampling.allowed_token_ids = {3, kEos};
    const SequenceId none = h.Add(disjoint);
    h.RunToEnd();
    EXPECT_THAT(h.collected[stuck].tokens, ElementsAre(1, 2));
    EXPECT_THAT(h.collected[none].tokens, IsEmpty());
    for (const SequenceId id : {stuck, none}) {
      EXPECT_EQ(h.collected[id].last.finish_reason, FinishReason::kError);
      EXPECT_EQ(h.collected[id].last.error.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(ReasonOf(h.collected[id].last.error), kReasonNoTokenAllowed) << h.collected[id].last.error;
    }
    for (const SequenceId id : {first, last}) ExpectAsAlone(h.collected[id], other, h.options);
  }
}

TEST(ConstraintTest, ACompleteOutputThatNothingCanEndHasEnded) {
  // Nothing of the vocabulary may follow, and the end token must not come: because of ignore_eos, or of min_tokens.
  Request ignoring = Constrained(Chain({{1}, {2, 3}}, {1}));
  ignoring.sampling.allowed_token_ids = {1, kEos};
  Request waiting = ignoring;
  waiting.sampling.ignore_eos = false;
  waiting.sampling.min_tokens = 4;
  for (const Request& request : {ignoring, waiting}) {
    SchedulerHarness h(SmallOptions());
    const SequenceId id = h.Add(request);
    h.RunToEnd();
    EXPECT_THAT(h.collected[id].tokens, ElementsAre(1));
    EXPECT_EQ(h.collected[id].last.finish_reason, FinishReason::kStop);
    EXPECT_EQ(h.collected[id].last.error, absl::OkStatus());
    ExpectAsAlone(h.collected[id], request, h.options);
  }
}

TEST(ConstraintTest, LogitsWithoutAFiniteValueAreStillTheModelsFault) {
  Request request = Constrained(Loop({1, 2}));
  request.sampling.seed = testing::kNonfiniteSeed;
  SchedulerHarness h(SmallOptions());
  const SequenceId id = h.Add(request);
  h.RunToEnd();
  EXPECT_EQ(ReasonOf(h.collected[id].last.error), kReasonNonfiniteLogits);
}

// Allows everything and takes nothing.
class Liar : public TokenConstraint {
 public:
  void FillMask(std::span<uint32_t> words) override { std::ranges::fill(words, ~uint32_t{0}); }
  bool Advance(int32_t) override { return false; }
  void Rollback(int32_t num_tokens) override { EXPECT_EQ(num_tokens, 0); }
  bool may_stop() const override { return false; }
  bool is_finished() const override { return false; }
  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<Liar>(); }
};

TEST(ConstraintTest, OneThatContradictsItselfEndsItsSequenceWithATypedError) {
  SchedulerHarness h(SmallOptions());
  const Request other = PromptOf(5, 20, 7);
  const SequenceId lied_to = h.Add(Constrained(std::make_shared<Liar>())), neighbour = h.Add(other);
  h.RunToEnd();
  EXPECT_EQ(h.collected[lied_to].last.finish_reason, FinishReason::kError);
  EXPECT_EQ(h.collected[lied_to].last.error.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(h.collected[lied_to].last.error), kReasonConstraintFailed);
  ExpectAsAlone(h.collected[neighbour], other, h.options);
}

TEST(ConstraintTest, ChoicesOfOneRequestFollowClones) {
  const auto shared = Loop({100, 300, 500, 700, 900});
  SchedulerHarness h(SmallOptions());
  std::vector<Request> choices;
  for (int32_t i = 0; i < 4; ++i) {
    choices.push_back(Constrained(shared, 8));
    choices.back().sampling.seed = uint64_t(i);
    h.Add(choices.back());
  }
  h.RunToEnd();
  for (size_t i = 0; i < choices.size(); ++i) ExpectAsAlone(h.collected[i + 1], choices[i], h.options);
  EXPECT_NE(h.collected[1].tokens, h.collected[2].tokens);
}

// Drafts what it is told to, at the given number of output tokens.
class ScriptedDrafter : public TokenDrafter {
 public:
  explicit ScriptedDrafter(std::vector<int32_t> drafts) : drafts_(std::move(drafts)) {}
  bool Wants(const Sequence&) override { return true; }
  void Draft(const Sequence&, int32_t max_tokens, std::vector<int32_t>* drafts) override {
    *drafts = drafts_;
    drafts->resize(std::min(drafts->size(), size_t(max_tokens)));
  }

 private:
  const std::vector<int32_t> drafts_;
};

TEST(ConstraintTest, RowsBehindDraftsHaveMasksAsIfTheDraftsHadCome) {
  ScriptedDrafter drafter({2, 4, 6});
  SchedulerHarness h(SmallOptions(), /*launches_async=*/false, &drafter);
  h.Add(Constrained(Chain({{1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10}}, {6})));
  h.Step();
  h.Launch();
  ASSERT_EQ(h.plan.samples.size(), 4u);
  EXPECT_THAT(Tokens(h.plan.samples[0].allowed_tokens), ElementsAre(2, 3));
  EXPECT_THAT(Tokens(h.plan.samples[1].allowed_tokens), ElementsAre(4, 5));
  EXPECT_THAT(Tokens(h.plan.samples[2].allowed_tokens), ElementsAre(6, 7));
  EXPECT_THAT(Tokens(h.plan.samples[3].allowed_tokens), ElementsAre(8, 9));
  std::vector<uint32_t> now(size_t(TokenBitmaskWords(h.options.vocab_size)));
  h.scheduler.running()[0]->output_mask.Fill({}, absl::MakeSpan(now));
  EXPECT_THAT(Tokens(now), ElementsAre(2, 3)) << "no draft has advanced it";
  h.Commit();
  h.RunToEnd();
}

TEST(ConstraintTest, DraftsThatMayNotComeHaveNoRow) {
  // The third may not come behind the first two; an end token may come behind one, and what is drawn behind it is void.
  for (const std::vector<int32_t>& drafts : {std::vector<int32_t>{2, 4, 9, 6}, {2, 4, 2, 4}, {2, kEos, 2, 4}}) {
    ScriptedDrafter drafter(drafts);
    SchedulerHarness h(SmallOptions(), /*launches_async=*/false, &drafter);
    Request request = Constrained(Chain({{1}, {2, 3}, {4, 5, kEos}, {6, 7}}, {2, 4}));
    request.sampling.ignore_eos = false;
    h.Add(request);
    h.Step();
    h.Launch();
    EXPECT_EQ(h.plan.num_tokens(), drafts[1] == kEos ? 2 : 3);
    h.Commit();
  }
}

TEST(ConstraintTest, AConstrainedSequenceWaitsAloneAndAllowedIdsWaitForNothing) {
  SchedulerHarness h(SmallOptions(), /*launches_async=*/true);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(PromptOf(4, 40, i));
  requests[0].constraint = Loop({100, 300, 500, 700, 900});
  for (size_t i = 1; i < 4; ++i) requests[i].sampling.allowed_token_ids = {10, 20, 30, 40, int32_t(i)};
  for (const Request& request : requests) h.Add(request);
  h.RunToEnd();
  for (size_t i = 0; i < requests.size(); ++i) ExpectAsAlone(h.collected[i + 1], requests[i], h.options);
  EXPECT_GT(h.runner.num_unknown_tokens, 5 * 35) << "five of them had a row in every step";
  EXPECT_THAT(h.collected[1].tokens, Each(AnyOf(100, 300, 500, 700, 900)));
}

TEST(ConstraintTest, APreemptedOneGoesOnWhereItStood) {
  EngineOptions options = SmallOptions();
  options.num_blocks = 12;
  options.max_model_len = 44;
  options.admit_by_forecast = false;
  SchedulerHarness h(options, /*launches_async=*/true);
  std::vector<std::vector<int32_t>> sets;
  for (int32_t i = 0; i < 40; ++i) sets.push_back({3 * i, 3 * i + 1, 3 * i + 2});
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i) requests.push_back(Constrained(Chain(sets, {}), 30, i));
  for (const Request& request : requests) h.Add(request);
  h.RunToEnd();
  EXPECT_GT(h.scheduler.num_preemptions(), 0);
  for (size_t i = 0; i < requests.size(); ++i) ExpectAsAlone(h.collected[i + 1], requests[i], h.options);
}

}  // namespace
}  // namespace sluice
