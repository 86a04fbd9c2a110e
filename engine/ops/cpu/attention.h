// Ops::Attention on the CPU: which rows, keys and heads a piece of work covers.
//
// The keys of a sequence are cut at fixed places, counted from position 0: tiles of 64 tokens share a softmax step,
// splits of 256 tokens start a sum of their own, and sums are merged split by split in ascending order. So a row's
// result does not depend on how the work is shared out. That is chosen freely: a unit is some consecutive rows of one
// sequence for one KV head, all query heads of its group included, so each KV head is read once; with few units a
// unit's splits are shared out as well, and whoever finishes the last of them merges.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/ops/cpu/cpu_context.h"
#include "engine/ops/cpu/kv_cache.h"

namespace sluice {

inline constexpr int kSplitTokens = 256;
inline constexpr int kSplitTiles = kSplitTokens / kTileTokens;

// Consecutive rows of one sequence and the splits that they can see.
struct AttentionUnit {
  int32_t sequence, first_row, num_rows, kv_head;
  int32_t first_split, end_split;
  int64_t partials = -1;  // offset of [end_split - first_split][num_rows * group] states; -1: one worker does it all
  int32_t num_items = 1;
};

struct AttentionItem {
  int32_t unit;
  int32_t first_split, end_split;
};

// The division of a step's attention, the same for all layers with the same heads, mask and cache group.
struct AttentionPlan {
  int32_t kv_group = -1, num_kv_heads = 0, group = 0, state_stride = 0;
  AttentionMask mask;
  uint64_t step = 0;
  std::vector<AttentionUnit> units;
  std::vector<AttentionItem> items;
};

class CpuAttention {
 public:
  // Room for the plans of steps of up to `max_tokens` rows. RESOURCE_EXHAUSTED if there is no memory.
  absl::Status Reserve(CpuContext& context);
  void Run(CpuContext& context, const AttentionArgs& args);

 private:
  static constexpr int kMaxPlans = 4;  // kinds of layers in a model: full and sliding, say

  const AttentionPlan& PlanFor(CpuContext& context, const AttentionArgs& args, int state_stride);
  void MakeUnits(const CpuContext& context, AttentionPlan& plan) const;
  void MakeItems(const CpuContext& context, AttentionPlan& plan) const;

  AttentionPlan plans_[kMaxPlans];
  // States of splits that are shared out. Address space; memory is taken where it is used.
  std::shared_ptr<uint8_t> partials_;
  // [unit] items that are done.
  std::unique_ptr<std::atomic<int32_t>[]> done_;
  size_t num_done_ = 0;
  AlignedBuffer worker_buffers_;
};

}  // namespace sluice
