// Blocks of window, chunk and full groups over the life of a sequence, counted by hand. That every key that can still
// be seen is where the tables say, and no other block is held, is HashRunner's and CheckInvariants' to verify in each
// step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/algorithm/container.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::MakePrompt;
using testing::MakeRequest;
using testing::SchedulerHarness;
using testing::SmallOptions;

constexpr AttentionMask kFull{};
constexpr AttentionMask Window(int32_t size) { return {MaskKind::kWindow, size}; }
constexpr AttentionMask Chunk(int32_t size) { return {MaskKind::kChunk, size}; }

// Blocks of 4 tokens, steps of up to 8 rows.
EngineOptions Options(std::vector<AttentionMask> groups) {
  EngineOptions options = SmallOptions();
  options.kv_groups = std::move(groups);
  options.max_num_batched_tokens = 8;
  options.max_num_seqs = 4;
  return options;
}

// Held blocks of each group of the oldest sequence.
std::vector<int32_t> Held(const SchedulerHarness& h) {
  std::vector<int32_t> held;
  for (const BlockTable& table : h.scheduler.running().at(0)->block_tables) held.push_back(table.num_held());
  return held;
}

TEST(KvBlocksTest, UnreachableBlocksAreThoseWhollyBeforeTheFirstVisibleKey) {
  EXPECT_EQ(UnreachableBlocks(kFull, 1000, 4), 0);
  EXPECT_EQ(UnreachableBlocks(Window(6), 5, 4), 0);  // sees 0..5
  EXPECT_EQ(UnreachableBlocks(Window(6), 8, 4), 0);  // sees 3..8
  EXPECT_EQ(UnreachableBlocks(Window(6), 9, 4), 1);  // sees 4..9
  EXPECT_EQ(UnreachableBlocks(Window(1), 8, 4), 2);  // sees itself
  EXPECT_EQ(UnreachableBlocks(Chunk(6), 11, 4), 1);  // sees 6..11, of block 1 on
  EXPECT_EQ(UnreachableBlocks(Chunk(6), 12, 4), 3);  // sees itself
  EXPECT_EQ(UnreachableBlocks(Chunk(8), 15, 4), 2);
}

// What PeakBlocks says against every way to cut a prompt that could need most: all steps of full size, from every first
// row on.
TEST(KvBlocksTest, PeakBlocksIsTightToOneBlock) {
  for (const int32_t block_size : {1, 2, 4, 5, 16}) {
    for (const int32_t rows : {1, 2, 7, 16, 33}) {
      for (const AttentionMask& mask : {kFull, Window(1), Window(2), Window(6), Window(16), Window(17), Window(33),
                                        Chunk(1), Chunk(2), Chunk(6), Chunk(16), Chunk(17)}) {
        EngineOptions options = Options({mask});
        options.block_size = block_size;
        options.max_num_batched_tokens = rows;
        int32_t before = 0;
        for (int32_t num_tokens = 1; num_tokens < 120; ++num_tokens) {
          int32_t most = 0;
          for (int32_t first = 0; first < num_tokens; ++first) {
            most = std::max(most, BlocksFor(std::min(first + rows, num_tokens), block_size) -
                                      UnreachableBlocks(mask, first, block_size));
          }
          const int32_t peak = PeakBlocks(mask, num_tokens, options);
          ASSERT_GE(peak, most) << num_tokens << " tokens";
          ASSERT_LE(peak, most + 1) << num_tokens << " tokens";
          ASSERT_GE(peak, before);
          before = peak;
          if (mask.kind == MaskKind::kWindow && num_tokens > 100) {
            ASSERT_EQ(peak, most);
          }
        }
      }
    }
  }
}

TEST(KvBlocksTest, NumbersNearTheEndsOfTheirTypesDoNotOverflow) {
  EngineOptions options = Options({Window(INT32_MAX), Chunk(INT32_MAX), kFull});
  options.block_size = 1;
  options.max_num_batched_tokens = INT32_MAX;
  EXPECT_EQ(PeakBlocks(int64_t{INT32_MAX}, options), 3 * int64_t{INT32_MAX});
  options.max_model_len = INT32_MAX;
  options.num_blocks = INT32_MAX;
  EXPECT_EQ(LongestSequence(options), INT32_MAX / 3);
}

TEST(KvBlocksTest, TheLongestSequenceFitsAndOneTokenMoreDoesNot) {
  EngineOptions options = Options({kFull, Window(6)});
  options.max_model_len = 1000;
  options.num_blocks = 20;  // 16 of the full group beside 4 of the window: ceil((5 + 8 - 1) / 4) + 1
  EXPECT_EQ(PeakBlocks(Window(6), 1000, options), 4);
  EXPECT_EQ(LongestSequence(options), 64);
  options.kv_groups = {Window(6)};
  options.num_blocks = 4;
  EXPECT_EQ(LongestSequence(options), 1000) << "a window needs no more, however long the sequence";
  options.num_blocks = 3;
  EXPECT_EQ(LongestSequence(options), 12);
  options.kv_groups = {kFull, kFull, kFull, kFull};
  EXPECT_EQ(LongestSequence(options), 0);
}

TEST(KvGroupsSchedulerTest, WindowsFreeBlocksThatFullGroupsKeep) {
  SchedulerHarness h(Options({kFull, Window(6)}));
  h.Add(MakeRequest(MakePrompt(30, 1, 1000), 12));
  // At the admission: all blocks of the prompt beside the window's 4.
  h.Step();
  EXPECT_EQ(h.scheduler.pool().num_live(), 8 + 4);
  EXPECT_EQ(h.scheduler.running()[0]->num_computed_tokens, 8);
  // The row at 8 sees 3..8: nothing can go yet.
  EXPECT_EQ(h.scheduler.running()[0]->block_tables[1].num_dropped(), 0);
  h.Step();  // 16 computed, 11.. in sight: blocks 0 and 1 became blocks 4 and 5
  EXPECT_THAT(Held(h), ElementsAre(8, 4));
  EXPECT_EQ(h.scheduler.running()[0]->block_tables[1].num_dropped(), 2);
  EXPECT_EQ(h.scheduler.running()[0]->block_tables[1].size(), 6);
  h.Step();  // 24, 19..: blocks 2 and 3 became blocks 6 and 7, the prompt's last
  EXPECT_THAT(Held(h), ElementsAre(8, 4));
  h.Step();  // 30, 25..: blocks 4 and 5 went back
  EXPECT_THAT(Held(h), ElementsAre(8, 2));
  EXPECT_EQ(h.scheduler.pool().num_live(), 10);
  // The generation: 12 tokens, the last of which is never computed. Rows 30 .. 40 see six keys each; those of 32, 36
  // and 40 are the first of a block and see two others.
  std::vector<int32_t> in_step;
  while (h.scheduler.has_sequences()) {
    h.Step();
    in_step.push_back(int32_t(absl::c_count_if(h.plan.kv_groups[1].block_tables, [](int32_t b) { return b >= 0; })));
    if (h.scheduler.has_sequences()) {
      EXPECT_EQ(Held(h)[1], 2);
    }
  }
  EXPECT_THAT(in_step, ElementsAre(2, 2, 3, 2, 2, 2, 3, 2, 2, 2, 3));
  EXPECT_EQ(h.scheduler.pool().num_live(), 0);
}

TEST(KvGroupsSchedulerTest, AChunkGivesAllItsBlocksBackWhereTheNextBegins) {
  SchedulerHarness h(Options({Chunk(8)}));
  h.Add(MakeRequest(MakePrompt(5, 1, 1000), 16));
  std::vector<int32_t> held;
  std::vector<int32_t> computed;
  while (h.scheduler.has_sequences()) {
    h.Step();
    if (!h.scheduler.has_sequences()) break;
    held.push_back(h.scheduler.pool().num_live());
    computed.push_back(h.scheduler.running()[0]->num_computed_tokens);
  }
  EXPECT_THAT(computed, ElementsAre(5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
  // With 8 and with 16 tokens computed both blocks of the chunk go; one of them is at once the next chunk's first. A
  // block of tokens to come is taken when they are computed, so with 12 there is one, with 13 there are two.
  EXPECT_THAT(held, ElementsAre(2, 2, 2, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1));
}

TEST(KvGroupsSchedulerTest, UnevenChunksKeepTheBlockTheyShare) {
  SchedulerHarness h(Options({Chunk(6)}));
  h.Add(MakeRequest(MakePrompt(5, 1, 1000), 9));
  std::vector<int32_t> held;
  while (h.scheduler.has_sequences()) {
    h.Step();
    if (h.scheduler.has_sequences()) held.push_back(h.scheduler.pool().num_live());
  }
  // 5 .. 12 computed; from 6 on keys 6.., of block 1, are in sight; from 12 on nothing of blocks 0 to 2.
  EXPECT_THAT(held, ElementsAre(2, 1, 1, 1, 2, 2, 2, 1));
}

TEST(KvGroupsSchedulerTest, AWindowOfOneTokenNeedsOneBlock) {
  SchedulerHarness h(Options({Window(1)}));
  h.Add(MakeRequest({1, 2, 3}, 40));
  h.Step();
  while (h.scheduler.has_sequences()) {
    EXPECT_LE(h.scheduler.pool().num_live(), 1);
    h.Step();
  }
}

TEST(KvGroupsSchedulerTest, AWindowedSequenceMayBeLongerThanThePool) {
  EngineOptions options = Options({Window(6)});
  options.num_blocks = 4;  // 16 tokens
  SchedulerHarness h(options);
  const Request request = MakeRequest(MakePrompt(150, 1, 1000), 106);
  const SequenceId id = h.Add(request);
  h.RunToEnd();
  ExpectAsAlone(h.collected[id], request, options);
  // Beside a full group it may not.
  options.kv_groups = {kFull, Window(6)};
  options.num_blocks = 4 + 64;
  EXPECT_EQ(ValidateRequest(request, options), absl::OkStatus()) << "the last token is never cached";
  options.num_blocks -= 1;
  EXPECT_EQ(ValidateRequest(request, options).code(), absl::StatusCode::kInvalidArgument);
}

TEST(KvGroupsSchedulerTest, AdmissionCountsWhatOutputsWillHoldInEveryGroup) {
  EngineOptions options = Options({kFull, Window(6)});
  // Each of 2 + 20 tokens, the last of which is never cached: 6 blocks of the full group, 3 of the window.
  options.num_blocks = 2 * (6 + 3);
  SchedulerHarness h(options);
  h.Add(MakeRequest({1, 2}, 20));
  h.Add(MakeRequest({3, 4}, 20));
  h.Step();
  EXPECT_EQ(h.scheduler.num_running(), 2);
  options.num_blocks -= 1;
  SchedulerHarness tight(options);
  tight.Add(MakeRequest({1, 2}, 20));
  tight.Add(MakeRequest({3, 4}, 20));
  tight.Step();
  EXPECT_EQ(tight.scheduler.num_running(), 1);
  tight.RunToEnd();
  EXPECT_EQ(tight.scheduler.num_preemptions(), 0);
}

TEST(KvGroupsSchedulerTest, APreemptedSequenceGivesEverythingBackAndGetsTheSameTokens) {
  EngineOptions options = Options({Window(10), kFull, Chunk(8)});
  options.num_blocks = int32_t(PeakBlocks(60, options));
  SchedulerHarness h(options);
  h.ExpectShortOutputs();
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(MakeRequest(MakePrompt(3 + i, i, 1000), 50));
    requests.back().sampling.ignore_eos = false;
    ids.push_back(h.Add(requests.back()));
  }
  h.RunToEnd();
  EXPECT_GT(h.scheduler.num_preemptions(), 0);
  for (size_t i = 0; i < ids.size(); ++i) ExpectAsAlone(h.collected[ids[i]], requests[i], options);
  EXPECT_EQ(h.scheduler.pool().num_live(), 0);
}

// The prompt of each of two takes most of the pool; the second waits instead of taking the first one's blocks away.
TEST(KvGroupsSchedulerTest, TwoLongPromptsDoNotPreemptEachOther) {
  EngineOptions options = Options({kFull, Window(20)});
  options.num_blocks = int32_t(PeakBlocks(120, options)) + 4;
  SchedulerHarness h(options);
  h.Add(MakeRequest(MakePrompt(110, 1, 1000), 10));
  h.Add(MakeRequest(MakePrompt(110, 2, 1000), 10));
  h.RunToEnd();
  EXPECT_EQ(h.scheduler.num_preemptions(), 0);
}

TEST(KvGroupsSchedulerTest, GroupsThatMakeNoSenseAreRefused) {
  EngineOptions options = Options({});
  EXPECT_EQ(ValidateEngineOptions(options).code(), absl::StatusCode::kInvalidArgument);
  options.kv_groups = {kFull, Window(0)};
  EXPECT_THAT(std::string(ValidateEngineOptions(options).message()), ::testing::HasSubstr("kv_groups[1].size: is 0"));
}

}  // namespace
}  // namespace sluice
