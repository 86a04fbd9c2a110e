// The attention of a step in pieces of work.
//
// The keys of a sequence are cut at fixed places, counted from position 0: tiles of 64 tokens share a softmax step,
// splits of 256 tokens start a sum of their own, and sums are merged split by split in ascending order. So a row's
// result does not depend on how the work is shared out. That is chosen freely: a unit is some consecutive rows of one
// sequence for some heads that read the same keys, so those are read once; with few units a unit's splits are shared
// out as well, and whoever finishes the last of them merges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/last_arrival.h"
#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

inline constexpr int kSplitTokens = 256;
inline constexpr int kSplitTiles = kSplitTokens / kTileTokens;

// Rows [first, end) of a step.
struct RowRange {
  int32_t first, end;
};

// Which rows of a step attend: all, or by the rule of MlaAttentionArgs those that take one of its forms.
struct RowChoice {
  enum class Form : uint8_t { kAll, kExpanded, kAbsorbed } form = Form::kAll;
  bool operator==(const RowChoice&) const = default;

  // Those of one sequence.
  RowRange RowsOf(const BatchView& batch, size_t sequence) const;
};

// What a layer's attention divides into. Layers with equal layouts share the plan of a step, whatever their KV groups.
struct AttentionLayout {
  AttentionMask mask;
  RowChoice rows;
  int32_t num_heads = 0;  // units side by side: KV heads, or other groups of heads
  int32_t rows_per_unit = 0;
  int64_t row_floats = 0;  // of the states that a row of a unit has over one split
  bool operator==(const AttentionLayout&) const = default;
};

// Consecutive rows of one sequence and the splits that they can see.
struct AttentionUnit {
  int32_t sequence, first_row, num_rows, head;
  int32_t first_split, end_split;
  int64_t partials = -1;  // offset of [end_split - first_split][num_rows][row_floats]; -1: one worker does it all
  int32_t num_items = 1;
};

struct AttentionItem {
  int32_t unit;
  int32_t first_split, end_split;
};

struct AttentionPlan {
  AttentionLayout layout;
  uint64_t step = 0;
  std::vector<AttentionUnit> units;
  std::vector<AttentionItem> items;
};

class AttentionPlanner {
 public:
  // RESOURCE_EXHAUSTED if there is no memory.
  absl::Status Reserve(CpuContext& context);

  // Runs a layer. make_runner(unit, worker) gives an object that does a unit's work on one worker:
  //   states()                  room for [num_rows][row_floats] of one split
  //   RunSplit(split, states)   leaves the rows' states over one split there
  //   Begin(), Merge(states) for each split in ascending order, Finish(): the result
  template <class MakeRunner>
  void Run(CpuContext& context, const AttentionLayout& layout, MakeRunner&& make_runner) {
    const AttentionPlan& plan = PlanFor(context, layout);
    context.pool.ParallelFor(static_cast<uint32_t>(plan.items.size()), [&](uint32_t chunk, int worker) {
      const AttentionItem& item = plan.items[chunk];
      const AttentionUnit& unit = plan.units[static_cast<size_t>(item.unit)];
      const auto runner = make_runner(unit, worker);
      if (unit.partials < 0) {
        runner.Begin();
        for (int32_t split = unit.first_split; split < unit.end_split; ++split) {
          runner.RunSplit(split, runner.states());
          runner.Merge(runner.states());
        }
        return runner.Finish();
      }
      const int64_t split_floats = unit.num_rows * layout.row_floats;
      float* partials = reinterpret_cast<float*>(partials_.get()) + unit.partials;
      for (int32_t split = item.first_split; split < item.end_split; ++split) {
        runner.RunSplit(split, partials + (split - unit.first_split) * split_floats);
      }
      if (!arrivals_[static_cast<size_t>(item.unit)].Arrive(unit.num_items)) return;
      runner.Begin();
      for (int32_t split = 0; split < unit.end_split - unit.first_split; ++split) {
        runner.Merge(partials + split * split_floats);
      }
      runner.Finish();
    });
  }

 private:
  static constexpr int kMaxPlans = 4;  // kinds of layers in a model: full and sliding, say

  const AttentionPlan& PlanFor(CpuContext& context, const AttentionLayout& layout);

  AttentionPlan plans_[kMaxPlans];
  // States of splits that are shared out. Address space; memory is taken where it is used.
  std::shared_ptr<uint8_t> partials_;
  std::unique_ptr<LastArrival<>[]> arrivals_;  // [unit]
  size_t num_arrivals_ = 0;
};

}  // namespace sluice
