// What an AttentionPlan says and where: which rows run as work items side by side, which as tiles of many rows.
//
// Worked example: a decode step of three sequences with 100, 600 and 300 tokens; limits of 1,000 tokens and three
// sequences, so split_slots = 1000 / 256 + 3 = 6, and slots 6, 7, 8 are the rows' own.
//
//   row  keys      items of 256   parts {row, first_item, end_item, slot}   merges {row, first_slot, num_items}
//    0   0 .. 99   0              {0, 0, 1, 6}                              -
//    1   0 .. 599  0 | 1 | 2      {1, 0, 1, 0} {1, 1, 2, 1} {1, 2, 3, 2}    {1, 0, 3}
//    2   0 .. 299  0 | 1          {2, 0, 1, 3} {2, 1, 2, 4}                 {2, 3, 2}
//
// Had row 2 found fewer than two slots left, it would be one part {2, 0, 2, 8}, which takes its items in turn. In a
// step with a prompt of five rows and 32 heads to a KV head, those five are no parts but tiles of
// AttentionTileTokens(32) = 2 tokens, that is 64 rows of mma: {sequence, first_row} = {0, 0} {0, 2} {0, 4}.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/cuda_language.h"

namespace sluice::cuda {

// Of AttentionPlan::counts.
enum AttentionPlanCount { kNumParts, kNumMerges, kNumTiles };

// Items [first_item, end_item) of one row, for one warp (or block) per KV head, taken in ascending order. Where that
// is not all of the row's items, the part is one item and its result goes to `slot`; else it may keep a running total
// there.
struct alignas(16) AttentionPart {
  int32_t row, first_item, end_item, slot;
};

// A row whose items are apart, in slots first_slot, first_slot + 1, ...
struct AttentionMerge {
  int32_t row, first_slot, num_items;
};

// Rows of a sequence that are taken together, from first_row on: AttentionTileTokens of them, or to the last.
struct AttentionRowTile {
  int32_t sequence, first_row;
};

inline constexpr int32_t kAttentionTileRows = 64;  // pairs of a token and a head of the group

// At least one token, so that with groups of more than kAttentionTileRows heads a tile has more rows than that.
__host__ __device__ inline int32_t AttentionTileTokens(int32_t rows_per_token) {
  return rows_per_token < kAttentionTileRows ? kAttentionTileRows / rows_per_token : 1;
}

// A step's tiles are no more.
inline int32_t MaxAttentionTiles(const StepArrays& step, int32_t rows_per_token) {
  const int32_t tokens = AttentionTileTokens(rows_per_token);
  return std::min(step.num_tokens, (step.num_tokens + tokens - 1) / tokens + step.num_seqs);
}

// Slots hold partial results: the first ones of items apart, then one for each decode row.
struct AttentionPlanSizes {
  int64_t split_slots, slots, parts, merges, tiles;
  __host__ __device__ explicit AttentionPlanSizes(const AttentionLimits& limits)
      : split_slots(limits.max_total_context / kAttentionItem + limits.max_seqs),
        slots(split_slots + limits.max_seqs),
        parts(slots),
        merges(limits.max_seqs),
        tiles(limits.max_tokens) {}
};

// The parts of AttentionPlan::items.
struct AttentionPlanView {
  AttentionPart* parts;
  AttentionMerge* merges;
  AttentionRowTile* tiles;
  __host__ __device__ explicit AttentionPlanView(const AttentionPlan& plan) {
    const AttentionPlanSizes sizes(plan.limits);
    parts = reinterpret_cast<AttentionPart*>(plan.items);
    merges = reinterpret_cast<AttentionMerge*>(parts + sizes.parts);
    tiles = reinterpret_cast<AttentionRowTile*>(merges + sizes.merges);
  }
};

// A step with as many rows as sequences is all decode rows.
__host__ __device__ inline bool IsDecodeStep(const StepArrays& step) { return step.num_tokens == step.num_seqs; }

// f32 of one head's partial result in a slot: O [value_dim], then m, l; 16-byte aligned.
__host__ __device__ inline int64_t AttentionPartialStride(int32_t value_dim) { return value_dim + 4; }

}  // namespace sluice::cuda
