// What sequences find in the prefix cache, counted by hand, and what becomes of the blocks. That whoever takes a block gets the
// tokens that it gets alone is HashRunner's to verify, that nobody writes what others read is CheckInvariants'.
#include "engine/scheduler/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/scheduler/oracle_drafter.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::ExpectAsAlone;
using testing::ExpectedOutput;
using testing::MakePrompt;
using testing::MakeRequest;
using testing::PromptOf;
using testing::SchedulerHarness;
using testing::SmallOptions;

constexpr AttentionMask kFull{};
constexpr AttentionMask Window(int32_t size) { return {MaskKind::kWindow, size}; }

// Blocks of 4 tokens, 64 of them; steps of 32 rows.
EngineOptions Options(std::vector<AttentionMask> groups = {kFull}) {
  EngineOptions options = SmallOptions();
  options.prefix_cache = true;
  options.kv_groups = std::move(groups);
  return options;
}

// The first `shared` tokens of `prompt`, then `own` others.
Request Branch(const Request& prompt, int32_t shared, int32_t own, int32_t salt) {
  Request request = prompt;
  request.prompt_tokens.resize(size_t(shared));
  for (const int32_t token : MakePrompt(own, salt, 998)) request.prompt_tokens.push_back(token);
  // Whatever MakePrompt says, the tokens part here.
  request.prompt_tokens[size_t(shared)] = (prompt.prompt_tokens[size_t(shared) % prompt.prompt_tokens.size()] + 1 + salt) % 998;
  request.sampling.seed = uint64_t(salt);
  return request;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options, bool launches_async = false, TokenDrafter* drafter = nullptr) {
    h_.emplace(options, launches_async, drafter);
  }
  // Runs it alone to its end and returns how many tokens of its prompt were found.
  int32_t RunCached(const Request& request) {
    const SequenceId id = h_->Add(request);
    const int64_t rows = h_->runner.num_rows;
    h_->RunToEnd();
    ExpectAsAlone(h_->collected[id], request, h_->options);
    const int32_t cached = h_->collected[id].last.num_cached_tokens;
    const auto tokens = int64_t(request.prompt_tokens.size() + h_->collected[id].tokens.size()) - 1;
    EXPECT_EQ(h_->runner.num_rows - rows, tokens - cached) << "a token is found or computed";
    return cached;
  }

  std::optional<SchedulerHarness> h_;
};

// ---- What is found ----

TEST_F(PrefixCacheTest, TheLastTokenIsAlwaysComputed) {
  Start(Options());
  EXPECT_EQ(RunCached(PromptOf(8, 1)), 0);
  EXPECT_EQ(RunCached(PromptOf(8, 1)), 4) << "the second block holds the last token";
  EXPECT_EQ(RunCached(PromptOf(9, 1)), 8);
  EXPECT_EQ(RunCached(PromptOf(4, 1)), 0);
  EXPECT_EQ(RunCached(PromptOf(5, 1)), 4);
  EXPECT_EQ(RunCached(PromptOf(1, 1)), 0);
  EXPECT_EQ(h_->scheduler.prefix_cache().num_queried_tokens(), 8 + 8 + 9 + 4 + 5 + 1);
  EXPECT_EQ(h_->scheduler.prefix_cache().num_hit_tokens(), 4 + 8 + 4);
}

TEST_F(PrefixCacheTest, OnlyWholeBlocksOfACommonPrefixAreFound) {
  Start(Options());
  const Request request = PromptOf(40, 2);
  EXPECT_EQ(RunCached(request), 0);
  EXPECT_EQ(RunCached(Branch(request, 22, 18, 3)), 20);
  EXPECT_EQ(RunCached(Branch(request, 24, 18, 4)), 24);
  EXPECT_EQ(RunCached(Branch(request, 3, 37, 5)), 0);
  EXPECT_EQ(RunCached(Branch(request, 40, 1, 6)), 40);
}

TEST_F(PrefixCacheTest, NothingIsFoundOrKeptWithoutIt) {
  EngineOptions options = Options();
  options.prefix_cache = false;
  Start(options);
  EXPECT_EQ(RunCached(PromptOf(40, 8)), 0);
  EXPECT_EQ(RunCached(PromptOf(40, 8)), 0);
  EXPECT_EQ(h_->scheduler.pool().num_cached(), 0);
  EXPECT_EQ(h_->scheduler.prefix_cache().num_queried_tokens(), 0);
}

TEST_F(PrefixCacheTest, TheSecondTurnOfAChatComputesItsNewTokensAndTheLastPartialBlock) {
  Start(Options());
  Request first = PromptOf(40, 10);
  EXPECT_EQ(RunCached(first), 0);
  Request second = first;
  for (const int32_t token : ExpectedOutput(first, h_->options).tokens) second.prompt_tokens.push_back(token);
  for (const int32_t token : MakePrompt(7, 77, 998)) second.prompt_tokens.push_back(token);
  ASSERT_EQ(second.prompt_tokens.size(), 57u);
  // Of the 50 tokens the last was drawn and never computed; 49 are 12 blocks of 4.
  EXPECT_EQ(RunCached(second), 48);
}

TEST_F(PrefixCacheTest, RequestsOfDifferentSaltsNeverShare) {
  Start(Options());
  Request a = PromptOf(40, 3), b = a, none = a;
  a.cache_salt = "a";
  b.cache_salt = "b";
  EXPECT_EQ(RunCached(a), 0);
  EXPECT_EQ(RunCached(b), 0);
  EXPECT_EQ(RunCached(none), 0);
  EXPECT_EQ(RunCached(a), 36);
  EXPECT_EQ(RunCached(b), 36);
  EXPECT_EQ(RunCached(none), 36);
  // And not at the same time either.
  for (const Request& request : {Branch(a, 30, 30, 1), Branch(b, 30, 30, 1), Branch(none, 30, 30, 1)}) h_->Add(request);
  h_->Step();
  for (const auto& s : h_->scheduler.running()) EXPECT_EQ(s->num_cached_tokens, 28);
  h_->RunToEnd();
}

TEST_F(PrefixCacheTest, WhatWasComputedInAnotherWayIsNotFound) {
  EngineOptions options = Options();
  options.numerics = {.mla_expand_from = 20, .gemm_library_from = 40, .rope = {.change_behind = {100}}};
  Start(options);
  EXPECT_EQ(RunCached(PromptOf(19, 2)), 0);
  EXPECT_EQ(RunCached(PromptOf(20, 2)), 0) << "expanded latents";
  EXPECT_EQ(RunCached(PromptOf(39, 2)), 20) << "as in the one before";
  EXPECT_EQ(RunCached(PromptOf(40, 2)), 0) << "the library's products";
  EXPECT_EQ(RunCached(PromptOf(40, 61)), 0) << "101 tokens have other frequencies";
  EXPECT_EQ(RunCached(PromptOf(40, 60)), 36);
}

TEST_F(PrefixCacheTest, LogProbabilitiesOfThePromptAreComputedAndItsBlocksServeOthers) {
  Start(Options());
  Request request = PromptOf(40, 3);
  request.sampling.prompt_logprobs = 1;
  EXPECT_EQ(RunCached(request), 0);
  EXPECT_EQ(RunCached(request), 0) << "they need every row";
  EXPECT_EQ(h_->scheduler.prefix_cache().num_queried_tokens(), 0);
  EXPECT_EQ(RunCached(PromptOf(40, 3)), 36);
}

TEST_F(PrefixCacheTest, APenaltyCountsTokensOfAPrefixThatWasFound) {
  for (const bool ahead : {false, true}) {
    Start(Options(), ahead);
    Request request = PromptOf(40, 8);
    request.sampling.presence_penalty = 1;
    EXPECT_EQ(RunCached(request), 0);
    EXPECT_EQ(RunCached(request), 36);
  }
}

// ---- Several at once ----

EngineOptions LongPrompts(int32_t num_blocks) {
  EngineOptions options = Options();
  options.max_model_len = 2100;
  options.block_size = 16;
  options.num_blocks = num_blocks;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 512;
  options.max_prefill_tokens_beside_decodes = 512;
  return options;
}

// 2000 tokens, the first 1800 of which are the same for every `i`: 112 blocks of 16, and 8 tokens.
Request NinetyPercent(int32_t i) {
  return Branch(PromptOf(2000, 10), 1800, 200, i + 1);
}

TEST_F(PrefixCacheTest, SixteenThatShareNinetyPercentOfTwoThousandTokens) {
  for (const bool warm : {true, false}) {
    for (const bool ahead : {false, true}) {
      Start(LongPrompts(2500), ahead);
      const SequenceId first = h_->Add(NinetyPercent(0));
      if (warm) h_->RunToEnd();
      for (int32_t i = 1; i < 16; ++i) h_->Add(NinetyPercent(i));
      h_->RunToEnd();
      for (int32_t i = 0; i < 16; ++i) {
        const testing::Collected& c = h_->collected[first + uint64_t(i)];
        ExpectAsAlone(c, NinetyPercent(i), h_->options);
        EXPECT_EQ(c.last.num_cached_tokens, i == 0 ? 0 : 112 * 16);
      }
      EXPECT_EQ(h_->runner.num_rows, 2000 + 15 * (2000 - 112 * 16) + 16 * 9) << "each common token once";
      EXPECT_EQ(h_->scheduler.prefix_cache().num_queried_tokens(), 16 * 2000);
      EXPECT_EQ(h_->scheduler.prefix_cache().num_hit_tokens(), 15 * 112 * 16);
    }
  }
}

TEST_F(PrefixCacheTest, ThePoolHoldsACommonPrefixOnceAndAdmissionKnows) {
  // The prefix, and for each 13 blocks of its own prompt and one for its output. 2000 and 10 tokens are 126 blocks.
  Start(LongPrompts(112 + 16 * 14));
  h_->Add(NinetyPercent(0));
  h_->RunToEnd();
  for (int32_t i = 1; i < 9; ++i) h_->Add(NinetyPercent(i));
  h_->Step();
  EXPECT_EQ(h_->scheduler.num_running(), 8);
  EXPECT_EQ(h_->scheduler.pool().num_live(), 112 + 8 * 13);
  for (int32_t i = 9; i < 17; ++i) h_->Add(NinetyPercent(i));
  h_->Step();
  EXPECT_EQ(h_->scheduler.num_running(), 16);
  h_->RunToEnd();
  EXPECT_EQ(h_->scheduler.num_preemptions(), 0);
  // Without room for all of them the last ones wait.
  Start(LongPrompts(112 + 10 * 14));
  h_->Add(NinetyPercent(0));
  h_->RunToEnd();
  for (int32_t i = 1; i < 17; ++i) h_->Add(NinetyPercent(i));
  h_->Step();
  EXPECT_EQ(h_->scheduler.num_running(), 10);
  h_->RunToEnd();
  EXPECT_EQ(h_->scheduler.num_preemptions(), 0);
}

TEST_F(PrefixCacheTest, ChoicesOfARequestShareItsPromptWithoutCopies) {
  Start(Options());
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 4; ++i) {
    requests.push_back(PromptOf(18, 6));
    requests.back().sampling.seed = i;
    h_->Add(requests.back());
  }
  h_->Step();
  EXPECT_EQ(h_->plan.num_tokens(), 18) << "one computes the prompt, though there are rows for more";
  h_->Step();
  EXPECT_EQ(h_->plan.num_tokens(), 1 + 3 * 2) << "the others have found four blocks of it";
  EXPECT_EQ(h_->scheduler.pool().num_live(), 4 + 4);
  h_->RunToEnd();
  for (size_t i = 0; i < 4; ++i) {
    ExpectAsAlone(h_->collected[i + 1], requests[i], h_->options);
    EXPECT_EQ(h_->collected[i + 1].last.num_cached_tokens, i == 0 ? 0 : 16);
  }
}

TEST_F(PrefixCacheTest, APromptWaitsForNobodyWhoHasNoRows) {
  EngineOptions options = Options();
  options.max_num_batched_tokens = 12;
  options.max_prefill_tokens_beside_decodes = 12;
  Start(options);
  const Request oldest = PromptOf(100, 2, 1), long_one = PromptOf(90, 2, 2), short_one = Branch(long_one, 8, 3, 3);
  h_->Add(oldest);
  h_->Step();
  const SequenceId id_long = h_->Add(long_one), id_short = h_->Add(short_one);
  h_->Step();
  // A quarter for the oldest, the rest for the shortest: the long one, whose first blocks are the same, has none.
  EXPECT_THAT(h_->plan.row_starts, ElementsAre(0, 3, 12));
  h_->Step();
  EXPECT_FALSE(h_->collected[id_short].tokens.empty());
  h_->RunToEnd();
  EXPECT_EQ(h_->collected[id_short].last.num_cached_tokens, 0);
  EXPECT_EQ(h_->collected[id_long].last.num_cached_tokens, 8) << "it finds what the short one has computed";
  ExpectAsAlone(h_->collected[id_long], long_one, options);
}

TEST_F(PrefixCacheTest, TheOldestPromptWaitsForNobody) {
  EngineOptions options = Options();
  options.max_num_batched_tokens = 12;
  options.max_prefill_tokens_beside_decodes = 12;
  Start(options);
  const Request oldest = PromptOf(100, 2, 1), short_one = Branch(oldest, 8, 3, 3);
  const SequenceId id = h_->Add(oldest), short_id = h_->Add(short_one);
  h_->Step();
  EXPECT_THAT(h_->plan.row_starts, ElementsAre(0, 3, 12)) << "its quarter, though the other one completes its first block";
  h_->RunToEnd();
  EXPECT_EQ(h_->collected[id].last.num_cached_tokens, 8 - 3) << "what it had not computed itself";
  ExpectAsAlone(h_->collected[id], oldest, options);
  ExpectAsAlone(h_->collected[short_id], short_one, options);
}

TEST_F(PrefixCacheTest, WhenTheOneThatComputesAPrefixIsCancelledAnotherGoesOn) {
  EngineOptions options = Options();
  options.max_num_batched_tokens = 8;
  options.max_prefill_tokens_beside_decodes = 8;
  for (const bool ahead : {false, true}) {
    Start(options, ahead);
    const Request request = PromptOf(60, 5);
    const SequenceId first = h_->Add(request), second = h_->Add(request), third = h_->Add(request);
    for (int i = 0; i < 3; ++i) h_->Step();
    EXPECT_EQ(h_->scheduler.running()[0]->num_computed_tokens, 24);
    h_->Finish(first, FinishReason::kCancelled);
    h_->RunToEnd();
    ExpectAsAlone(h_->collected[second], request, options);
    ExpectAsAlone(h_->collected[third], request, options);
    EXPECT_EQ(h_->collected[second].last.num_cached_tokens, 24);
    EXPECT_EQ(h_->collected[third].last.num_cached_tokens, 56);
  }
}

TEST_F(PrefixCacheTest, WhoComputesWhatAnotherHasComputedTakesThatInstead) {
  // Those who report on their prompts compute all of it.
  Start(Options());
  Request request = PromptOf(30, 20);
  request.sampling.prompt_logprobs = 0;
  h_->Add(request);
  h_->Add(request);
  h_->Step();
  h_->Step();
  ASSERT_EQ(h_->scheduler.num_running(), 2);
  EXPECT_GE(h_->scheduler.running()[1]->num_computed_tokens, 28);
  EXPECT_EQ(h_->scheduler.pool().num_live(), 7 + 2) << "seven full blocks once";
  h_->RunToEnd();
  for (SequenceId id : {1, 2}) ExpectAsAlone(h_->collected[id], request, h_->options);
}

// ---- When it is there ----

TEST_F(PrefixCacheTest, ABlockIsThereOnceTheStepThatFillsItIsPlanned) {
  Start(Options(), /*launches_async=*/true);
  const Request request = PromptOf(21, 5);
  h_->Add(request);
  ASSERT_TRUE(h_->Launch());
  h_->Add(request);
  ASSERT_TRUE(h_->Launch()) << "while the first step is in flight";
  EXPECT_EQ(h_->scheduler.running()[1]->num_cached_tokens, 20);
  h_->Commit();
  h_->RunToEnd();
  for (SequenceId id : {1, 2}) ExpectAsAlone(h_->collected[id], request, h_->options);
}

TEST_F(PrefixCacheTest, ATokenThatNobodyKnowsYetIsInNoKey) {
  Start(Options(), /*launches_async=*/true);
  const Request request = PromptOf(6, 30);
  const std::vector<int32_t> drawn = ExpectedOutput(request, h_->options).tokens;
  h_->Add(request);
  for (int i = 0; i < 4; ++i) h_->Step();
  // 6 + 3 tokens are computed, the last of them while its token is in flight.
  const Sequence& s = *h_->scheduler.running()[0];
  EXPECT_EQ(s.num_computed_tokens, 9);
  EXPECT_EQ(s.num_published_blocks, 2);
  while (s.num_computed_tokens < 11) h_->Step();
  ASSERT_TRUE(h_->Launch());
  EXPECT_EQ(s.num_computed_tokens, 12);
  EXPECT_EQ(s.num_published_blocks, 2) << "the twelfth token is being drawn";
  h_->Commit();
  EXPECT_EQ(s.num_published_blocks, 3);
  Request next = request;
  next.prompt_tokens.insert(next.prompt_tokens.end(), drawn.begin(), drawn.begin() + 7);
  h_->RunToEnd();
  EXPECT_EQ(RunCached(next), 12);
}

// Always the same drafts, as many as it may.
class FixedDrafter : public TokenDrafter {
 public:
  explicit FixedDrafter(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  bool Wants(const Sequence&) override { return on; }
  void Draft(const Sequence&, int32_t max_tokens, std::vector<int32_t>* drafts) override {
    for (int32_t token : tokens_) {
      if (on && int32_t(drafts->size()) < max_tokens) drafts->push_back(token);
    }
  }
  bool on = true;

 private:
  const std::vector<int32_t> tokens_;
};

TEST_F(PrefixCacheTest, DraftsAreInNoKeyUntilTheyAreTokens) {
  for (const bool ahead : {false, true}) {
    const Request request = PromptOf(4, 12);
    const std::vector<int32_t> drawn = ExpectedOutput(request, Options()).tokens;
    // Two right ones, then wrong ones that fill the second block and the third.
    FixedDrafter drafter({drawn[1], drawn[2], 7, 8, 9, 10, 11, 12, 13});
    Start(Options(), ahead, &drafter);
    const SequenceId id = h_->Add(request);
    while (h_->collected[id].tokens.size() < 4) h_->Step();
    drafter.on = false;
    // Somebody who asks just for that.
    Request guess = request;
    guess.prompt_tokens.insert(guess.prompt_tokens.end(), {drawn[0], drawn[1], drawn[2], 7, 8, 9, 10, 11, 12});
    const SequenceId guess_id = h_->Add(guess);
    h_->RunToEnd();
    EXPECT_EQ(h_->collected[guess_id].last.num_cached_tokens, 4);
    ExpectAsAlone(h_->collected[guess_id], guess, h_->options);
    ExpectAsAlone(h_->collected[id], request, h_->options);
    // What was right is as good as drawn.
    Request next = request;
    next.prompt_tokens.insert(next.prompt_tokens.end(), drawn.begin(), drawn.begin() + 9);
    EXPECT_EQ(RunCached(next), 12);
  }
}

// ---- Eviction and preemption ----

TEST_F(PrefixCacheTest, WhatIsTakenIsNotEvictedForWhatIsNew) {
  EngineOptions options = Options();
  options.num_blocks = 10;
  options.max_model_len = 41;
  Start(options);
  const Request first = PromptOf(25, 3), second = Branch(first, 24, 14, 5);
  EXPECT_EQ(RunCached(first), 0);
  EXPECT_EQ(RunCached(PromptOf(13, 3, 9)), 0);
  EXPECT_EQ(h_->scheduler.pool().num_cached(), 6 + 3);
  // Six blocks of the first and four more, three of which are cached and younger than those six.
  EXPECT_EQ(RunCached(second), 24);
}

TEST_F(PrefixCacheTest, TheEndOfAPrefixIsEvictedBeforeItsBeginningInAllGroups) {
  EngineOptions options = Options({kFull, Window(1000)});
  options.num_blocks = 2 * 20;
  options.max_model_len = 80;
  Start(options);
  EXPECT_EQ(RunCached(PromptOf(48, 1)), 0);  // 12 blocks in each group
  EXPECT_EQ(RunCached(PromptOf(60, 1, 2)), 0);  // 15; 16 blocks were free
  EXPECT_EQ(RunCached(PromptOf(48, 1)), 20) << "14 were evicted, seven of each group; five are left";
}

TEST_F(PrefixCacheTest, APreemptedSequenceFindsItsOwnBlocks) {
  int64_t rows[2];
  for (const bool on : {false, true}) {
    EngineOptions options = Options();
    options.prefix_cache = on;
    options.num_blocks = 17;
    options.max_model_len = 64;
    Start(options);
    h_->ExpectShortOutputs();
    const int64_t before = h_->runner.num_rows;
    std::vector<Request> requests;
    std::vector<SequenceId> ids;
    for (int i = 0; i < 3; ++i) {
      requests.push_back(PromptOf(9, 50, i));
      requests.back().sampling.ignore_eos = false;
      ids.push_back(h_->Add(requests.back()));
    }
    h_->RunToEnd();
    EXPECT_GT(h_->scheduler.num_preemptions(), 0);
    for (size_t i = 0; i < 3; ++i) {
      ExpectAsAlone(h_->collected[ids[i]], requests[i], options);
      EXPECT_EQ(h_->collected[ids[i]].last.num_cached_tokens, 0) << "they were its own";
    }
    rows[on] = h_->runner.num_rows - before;
  }
  EXPECT_LT(rows[1], rows[0]);
}

// ---- Windows and chunks ----

TEST_F(PrefixCacheTest, AWindowNeedsNoMoreThanWhatItStillSees) {
  EngineOptions options = Options({Window(6)});
  options.num_blocks = 12;
  options.max_num_batched_tokens = 8;
  options.max_prefill_tokens_beside_decodes = 8;
  Start(options);
  EXPECT_EQ(RunCached(PromptOf(100, 3)), 0);
  EXPECT_LE(h_->scheduler.pool().num_cached(), 12);
  EXPECT_EQ(RunCached(PromptOf(100, 3)), 96) << "its first blocks are long gone";
}

TEST_F(PrefixCacheTest, EveryGroupMustHaveWhatItNeeds) {
  const Request request = PromptOf(60, 1);
  for (const bool pressed : {false, true}) {
    EngineOptions options = Options({kFull, Window(6)});
    options.num_blocks = pressed ? 34 : 64;
    options.max_model_len = 80;
    Start(options);
    EXPECT_EQ(RunCached(request), 0);  // 15 blocks in each group
    // The end of the prompt is there as a whole; of its middle the window's blocks are older than all others.
    if (pressed) {
      EXPECT_EQ(RunCached(PromptOf(13, 1, 9)), 0);  // four and four more
    }
    EXPECT_EQ(RunCached(Branch(request, 20, 6, 3)), pressed ? 0 : 20);
    if (!pressed) {
      EXPECT_EQ(RunCached(request), 56);
    }
  }
}

TEST_F(PrefixCacheTest, SharedBlocksOfAWindowAreReplacedWhenTheyAreDropped) {
  // Two that share a window's blocks in the middle of their prompts, in a pool that has exactly what both may hold.
  EngineOptions options = Options({Window(10)});
  options.max_num_batched_tokens = 8;
  options.max_prefill_tokens_beside_decodes = 8;
  options.num_blocks = 2 * int32_t(PeakBlocks(120, options));
  for (const bool ahead : {false, true}) {
    Start(options, ahead);
    const Request first = PromptOf(100, 20), second = Branch(first, 50, 50, 3);
    const SequenceId id = h_->Add(first);
    while (h_->scheduler.num_running() == 0 || h_->scheduler.running()[0]->num_computed_tokens < 48) h_->Step();
    const SequenceId other = h_->Add(second);
    h_->Step();
    EXPECT_EQ(h_->scheduler.running()[1]->num_cached_tokens, 48);
    EXPECT_GT(h_->scheduler.pool().num_promised(), 0);
    h_->RunToEnd();
    ExpectAsAlone(h_->collected[id], first, options);
    ExpectAsAlone(h_->collected[other], second, options);
    EXPECT_EQ(h_->scheduler.num_preemptions(), 0);
    EXPECT_EQ(h_->scheduler.pool().num_promised(), 0);
  }
}

}  // namespace
}  // namespace sluice
