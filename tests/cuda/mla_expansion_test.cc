#include "engine/ops/cuda/mla_expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/ops/cuda/kernels/mla_expand.h"

namespace sluice {
namespace {

using testing::ElementsAre;

struct Rows {
  int32_t context = 0;  // with them
  int32_t count = 0;
  int32_t prompt = 0;
};

class Step {
 public:
  Step(const std::vector<Rows>& sequences, int32_t expand_from) {
    for (const Rows& rows : sequences) {
      const RequestNumerics numerics({.mla_expand_from = expand_from, .gemm_library_from = 1, .rope = {}}, rows.prompt, 0);
      for (int32_t i = 0; i < rows.count; ++i) {
        positions_.push_back(rows.context - rows.count + i);
        row_routes_.push_back(numerics.route(positions_.back()));
      }
      row_starts_.push_back(static_cast<int32_t>(positions_.size()));
      context_lens_.push_back(rows.context);
    }
  }
  BatchView view() const {
    BatchView view;
    view.positions = positions_;
    view.row_starts = row_starts_;
    view.context_lens = context_lens_;
    view.row_routes = row_routes_;
    return view;
  }

 private:
  std::vector<int32_t> positions_, row_starts_ = {0}, context_lens_;
  std::vector<RowRoute> row_routes_;
};

MlaExpansion Begun(int32_t expand_from, int32_t pass_tokens, const std::vector<Rows>& sequences) {
  MlaExpansion expansion(pass_tokens);
  expansion.SetLimits(expand_from != INT32_MAX, 1 << 14, 16, 1 << 10);
  expansion.BeginStep(Step(sequences, expand_from).view());
  return expansion;
}

TEST(MlaExpansion, NeverIsNever) {
  const MlaExpansion expansion = Begun(INT32_MAX, 1024, {{1000, 1000, 1000}});
  EXPECT_FALSE(expansion.any());
}

TEST(MlaExpansion, TakesRowsAtPromptPositionsOfLongPrompts) {
  // A whole prompt; a short one; generated; the last of a prompt and what was generated, computed anew; a chunk of one.
  const MlaExpansion expansion =
      Begun(100, 1024, {{120, 120, 120}, {99, 99, 99}, {150, 1, 120}, {160, 50, 130}, {110, 1, 130}});
  EXPECT_TRUE(expansion.any());
  EXPECT_THAT(expansion.expanded_ends(), ElementsAre(120, 120, 219, 240, 271));
  EXPECT_THAT(expansion.first_blocks(), ElementsAre(0, -1, -1, 2, 5));
  EXPECT_THAT(expansion.absorbed_runs(), ElementsAre(MlaExpansion::Run{120, 100}, MlaExpansion::Run{240, 30}));
  ASSERT_EQ(expansion.passes().size(), 1u);
  EXPECT_EQ(expansion.passes()[0].first_seq, 0);
  EXPECT_EQ(expansion.passes()[0].end_seq, 5);
  EXPECT_EQ(expansion.passes()[0].num_blocks, 7);
  EXPECT_EQ(expansion.passes()[0].longest_blocks, 3);
}

TEST(MlaExpansion, AStepOfGeneratedTokensHasNone) {
  EXPECT_FALSE(Begun(1, 1024, {{150, 1, 120}, {121, 1, 120}}).any());
}

TEST(MlaExpansion, CutsPassesWhereTheNextSequenceDoesNotFit) {
  // Blocks: 2, 2, 9 (more than a pass), 1.
  const MlaExpansion expansion = Begun(1, 256, {{128, 128, 128}, {65, 65, 65}, {576, 10, 600}, {64, 64, 64}});
  ASSERT_EQ(expansion.passes().size(), 3u);
  EXPECT_THAT(expansion.first_blocks(), ElementsAre(0, 2, 0, 0));
  EXPECT_EQ(expansion.passes()[0].end_seq, 2);
  EXPECT_EQ(expansion.passes()[1].num_blocks, 9);
  EXPECT_EQ(expansion.passes()[2].first_seq, 3);
  // 4 blocks of 16 heads are 64: 9 blocks leave room for 7.
  EXPECT_EQ(expansion.HeadsAtOnce(expansion.passes()[0], 128), 16);
  EXPECT_EQ(expansion.HeadsAtOnce(expansion.passes()[1], 128), 7);
  EXPECT_EQ(expansion.HeadsAtOnce(expansion.passes()[2], 128), 64);
  EXPECT_EQ(expansion.HeadsAtOnce(expansion.passes()[2], 5), 5);
}

TEST(MlaExpansion, RandomStepsFitTheRoomThatWasReserved) {
  std::mt19937 rng(5);
  const auto up_to = [&](int32_t most) { return std::uniform_int_distribution<int32_t>(1, most)(rng); };
  for (int round = 0; round < 300; ++round) {
    const int32_t max_seqs = up_to(12), longest = up_to(900), pass_tokens = up_to(700), heads = up_to(40);
    const int64_t max_context = up_to(max_seqs * longest);
    MlaExpansion expansion(pass_tokens);
    const int32_t expand_from = up_to(50);
    expansion.SetLimits(true, max_context, max_seqs, longest);
    const MlaExpansion::Room room = expansion.RoomFor(heads);
    std::vector<Rows> sequences;
    for (int64_t left = max_context; left > 0 && int32_t(sequences.size()) < max_seqs;) {
      const int32_t context = std::min<int32_t>(up_to(longest), int32_t(left));
      sequences.push_back({context, up_to(context), up_to(longest)});
      left -= context;
    }
    expansion.BeginStep(Step(sequences, expand_from).view());
    if (!expansion.any()) continue;
    for (const MlaExpansion::Pass& pass : expansion.passes()) {
      const int64_t tokens = int64_t{pass.num_blocks} * cuda::kExpandedBlock;
      EXPECT_LE(tokens, room.tokens);
      EXPECT_LE(tokens * expansion.HeadsAtOnce(pass, heads), room.token_heads);
      EXPECT_LE(pass.longest_blocks, room.sequence_blocks);
    }
    EXPECT_EQ(expansion.RoomFor(heads).token_heads, room.token_heads) << "the room did not grow";
    // Every row has one form.
    int32_t expanded = 0, absorbed = 0, first = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      expanded += expansion.expanded_ends()[s] - first;
      first += sequences[s].count;
    }
    for (const MlaExpansion::Run& run : expansion.absorbed_runs()) absorbed += run.count;
    EXPECT_EQ(expanded + absorbed, first);
  }
}

TEST(MlaExpansion, PaddingStandsForTheLargestStepOrForNone) {
  MlaExpansion expansion;
  expansion.SetLimits(true, 1000, 4, 500);
  expansion.BeginPadding(7, true);
  EXPECT_TRUE(expansion.any());
  EXPECT_THAT(expansion.absorbed_runs(), ElementsAre(MlaExpansion::Run{0, 7}));
  expansion.BeginPadding(7, false);
  EXPECT_FALSE(expansion.any());
  expansion.SetLimits(false, 1000, 4, 500);
  expansion.BeginPadding(7, true);
  EXPECT_FALSE(expansion.any());
}

}  // namespace
}  // namespace sluice
