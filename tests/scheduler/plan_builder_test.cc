#include "engine/scheduler/plan_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MakeRequest;
using testing::SmallOptions;

class PlanBuilderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Sequence> MakeSequence(Request request, int32_t slot) {
    auto s = std::make_unique<Sequence>(1, std::move(request), options_, &pool_, 0);
    s->slot = slot;
    return s;
  }
  void Build(std::vector<Sequence*> sequences) {
    for (Sequence* s : sequences) {
      EXPECT_TRUE(
          s->block_tables[0].GrowTo(BlocksFor(s->num_computed_tokens + s->num_scheduled_tokens, options_.block_size)));
    }
    BuildStepPlan(sequences, options_.block_size, &plan_);
  }

  EngineOptions options_ = SmallOptions();
  BlockPool pool_{16};
  StepPlan plan_;
};

TEST_F(PlanBuilderTest, LaysRowsOfAChunkAndADecodeSideBySide) {
  auto decode = MakeSequence(MakeRequest({10, 11, 12, 13, 14}, 8), 3);
  decode->tokens.push_back(15);  // one output
  decode->num_computed_tokens = 5;
  decode->num_scheduled_tokens = 1;
  auto chunk = MakeSequence(MakeRequest({20, 21, 22, 23, 24, 25, 26, 27, 28, 29}, 8), 0);
  chunk->num_computed_tokens = 2;
  chunk->num_scheduled_tokens = 3;
  Build({decode.get(), chunk.get()});

  EXPECT_THAT(plan_.token_ids, ElementsAre(15, 22, 23, 24));
  EXPECT_THAT(plan_.positions, ElementsAre(5, 2, 3, 4));
  EXPECT_THAT(plan_.row_starts, ElementsAre(0, 1, 4));
  EXPECT_THAT(plan_.context_lens, ElementsAre(6, 5));
  EXPECT_THAT(plan_.seq_slots, ElementsAre(3, 0));
  const int32_t d0 = decode->block_tables[0].blocks()[0], d1 = decode->block_tables[0].blocks()[1];
  const int32_t c0 = chunk->block_tables[0].blocks()[0], c1 = chunk->block_tables[0].blocks()[1];
  EXPECT_EQ(plan_.kv_groups[0].block_table_stride, 2);
  EXPECT_THAT(plan_.kv_groups[0].block_tables, ElementsAre(d0, d1, c0, c1));
  EXPECT_THAT(plan_.kv_groups[0].slot_mapping, ElementsAre(d1 * 4 + 1, c0 * 4 + 2, c0 * 4 + 3, c1 * 4 + 0));

  ASSERT_EQ(plan_.samples.size(), 1u) << "a chunk that does not reach the end draws nothing";
  const SampleEntry& e = plan_.samples[0];
  EXPECT_EQ(e.sequence_index, 0);
  EXPECT_EQ(e.position, 6);
  EXPECT_EQ(e.params, &decode->request.sampling);
  EXPECT_THAT(e.prompt_tokens, ElementsAre(10, 11, 12, 13, 14));
  EXPECT_THAT(e.output_tokens, ElementsAre(15));
  EXPECT_THAT(plan_.logits_rows, ElementsAre(0));
}

TEST_F(PlanBuilderTest, ShowsOnlyTheBlocksOfTheContextAndFillsWithMinusOne) {
  auto longer = MakeSequence(MakeRequest({1, 2, 3, 4, 5, 6, 7, 8, 9}, 8), 0);
  longer->num_scheduled_tokens = 9;
  auto shorter = MakeSequence(MakeRequest({1, 2, 3, 4, 5, 6, 7, 8, 9}, 8), 1);
  ASSERT_TRUE(shorter->block_tables[0].GrowTo(3));  // taken at admission for the whole prompt
  shorter->num_scheduled_tokens = 2;
  Build({longer.get(), shorter.get()});
  EXPECT_EQ(plan_.kv_groups[0].block_table_stride, 3);
  EXPECT_EQ(plan_.kv_groups[0].block_tables[3], shorter->block_tables[0].blocks()[0]);
  EXPECT_EQ(plan_.kv_groups[0].block_tables[4], -1);
  EXPECT_EQ(plan_.kv_groups[0].block_tables[5], -1);
}

TEST_F(PlanBuilderTest, AsksForTheLogprobsOfEveryPromptTokenButTheFirst) {
  Request request = MakeRequest({10, 11, 12, 13}, 8);
  request.sampling.prompt_logprobs = 2;
  auto s = MakeSequence(std::move(request), 0);
  s->num_scheduled_tokens = 4;
  Build({s.get()});
  ASSERT_EQ(plan_.prompt_logprobs.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plan_.prompt_logprobs[i].logits_index, i);
    EXPECT_EQ(plan_.prompt_logprobs[i].token, 11 + i);
    EXPECT_EQ(plan_.prompt_logprobs[i].num_top, 2);
  }
  EXPECT_THAT(plan_.logits_rows, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(plan_.samples.at(0).logits_row, 3);
}

TEST_F(PlanBuilderTest, DoesNotAskAgainForPromptLogprobsAlreadyDelivered) {
  Request request = MakeRequest({10, 11, 12, 13, 14, 15}, 8);
  request.sampling.prompt_logprobs = 0;
  auto s = MakeSequence(std::move(request), 0);
  s->num_prompt_logprobs = 3;  // of 11, 12, 13, before a preemption
  s->num_scheduled_tokens = 5;
  Build({s.get()});
  EXPECT_THAT(plan_.logits_rows, ElementsAre(3, 4));
  EXPECT_EQ(plan_.prompt_logprobs.at(0).token, 14);
  EXPECT_EQ(plan_.prompt_logprobs.at(1).token, 15);
  EXPECT_THAT(plan_.samples, IsEmpty());
}

TEST_F(PlanBuilderTest, MasksEndAndStopTokensBelowMinTokens) {
  Request request = MakeRequest({10, 11}, 8);
  request.sampling.min_tokens = 2;
  request.sampling.stop_token_ids = {5, 999, 5};
  auto s = MakeSequence(std::move(request), 0);
  s->tokens.push_back(12);
  s->num_computed_tokens = 2;
  s->num_scheduled_tokens = 1;
  Build({s.get()});
  EXPECT_THAT(plan_.samples.at(0).masked_tokens, ElementsAre(5, 998, 999)) << "both ends of the model, not one";
  s->tokens.push_back(13);  // min_tokens reached
  s->num_computed_tokens = 3;
  Build({s.get()});
  EXPECT_THAT(plan_.samples.at(0).masked_tokens, IsEmpty());
}

TEST_F(PlanBuilderTest, LeavesNothingOfThePlanBefore) {
  Request request = MakeRequest({10, 11, 12, 13, 14}, 8);  // two blocks
  request.sampling.prompt_logprobs = 0;
  auto s = MakeSequence(std::move(request), 2);
  s->num_scheduled_tokens = 5;
  Build({s.get()});
  auto t = MakeSequence(MakeRequest({20, 21, 22}, 8), 1);
  t->num_scheduled_tokens = 1;
  Build({t.get()});
  EXPECT_THAT(plan_.token_ids, ElementsAre(20));
  EXPECT_THAT(plan_.row_starts, ElementsAre(0, 1));
  EXPECT_THAT(plan_.context_lens, ElementsAre(1));
  EXPECT_THAT(plan_.seq_slots, ElementsAre(1));
  EXPECT_EQ(plan_.kv_groups[0].slot_mapping.size(), 1u);
  EXPECT_EQ(plan_.kv_groups[0].block_tables.size(), 1u);
  EXPECT_EQ(plan_.kv_groups[0].block_table_stride, 1);
  EXPECT_THAT(plan_.logits_rows, IsEmpty());
  EXPECT_THAT(plan_.samples, IsEmpty());
  EXPECT_THAT(plan_.prompt_logprobs, IsEmpty());
}

}  // namespace
}  // namespace sluice
