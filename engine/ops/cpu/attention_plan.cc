#include "engine/ops/cpu/attention_plan.h"

#include "engine/ops/routed_rows.h"

namespace sluice {
namespace {

constexpr size_t kPartialBytes = size_t{64} << 20;
// Pieces of work per thread that make up for their unequal sizes.
constexpr int kItemsPerThread = 4;

void MakeUnits(const BatchView& batch, AttentionPlan& plan) {
  const AttentionLayout& layout = plan.layout;
  plan.units.clear();
  for (size_t s = 0; s < batch.context_lens.size(); ++s) {
    const RowRange rows = layout.rows.RowsOf(batch, s);
    for (int32_t row = rows.first; row < rows.end; row += layout.rows_per_unit) {
      AttentionUnit unit{};
      unit.sequence = static_cast<int32_t>(s);
      unit.first_row = row;
      unit.num_rows = std::min(layout.rows_per_unit, rows.end - row);
      unit.partials = -1;
      unit.num_items = 1;
      unit.first_split = FirstVisibleKey(layout.mask, batch.positions[static_cast<size_t>(row)]) / kSplitTokens;
      unit.end_split = batch.positions[static_cast<size_t>(row + unit.num_rows - 1)] / kSplitTokens + 1;
      for (unit.head = 0; unit.head < layout.num_heads; ++unit.head) plan.units.push_back(unit);
    }
  }
}

void MakeItems(int num_threads, AttentionPlan& plan) {
  const int wanted = kItemsPerThread * num_threads;
  const int num_units = static_cast<int>(plan.units.size());
  const int per_unit = num_threads == 1 || num_units == 0 ? 1 : (wanted + num_units - 1) / num_units;
  int64_t used = 0;  // floats of the partial states
  plan.items.clear();
  for (int u = 0; u < num_units; ++u) {
    AttentionUnit& unit = plan.units[static_cast<size_t>(u)];
    const int splits = unit.end_split - unit.first_split;
    const int64_t floats = int64_t{splits} * unit.num_rows * plan.layout.row_floats;
    const bool room = static_cast<size_t>(used + floats) * sizeof(float) <= kPartialBytes;
    unit.num_items = room ? std::min(splits, per_unit) : 1;
    if (unit.num_items > 1) {
      unit.partials = used;
      used += floats;
    }
    for (int i = 0; i < unit.num_items; ++i) {
      plan.items.push_back(
          {u, unit.first_split + splits * i / unit.num_items, unit.first_split + splits * (i + 1) / unit.num_items});
    }
  }
}

}  // namespace

RowRange RowChoice::RowsOf(const BatchView& batch, size_t sequence) const {
  const RowRange all{batch.row_starts[sequence], batch.row_starts[sequence + 1]};
  if (form == Form::kAll) return all;
  const int32_t boundary = all.first + RoutedRows(batch, sequence, kRouteExpandedLatents);
  return form == Form::kExpanded ? RowRange{all.first, boundary} : RowRange{boundary, all.end};
}

absl::Status AttentionPlanner::Reserve(CpuContext& context) {
  if (partials_ == nullptr) partials_ = context.arena.Allocate(kPartialBytes);
  if (partials_ == nullptr) return absl::ResourceExhaustedError("no memory for the sums of attention");
  return absl::OkStatus();
}

const AttentionPlan& AttentionPlanner::PlanFor(CpuContext& context, const AttentionLayout& layout) {
  AttentionPlan* stale = nullptr;  // of an earlier step
  for (AttentionPlan& plan : plans_) {
    if (plan.step != context.step) {
      if (stale == nullptr) stale = &plan;
    } else if (plan.layout == layout) {
      return plan;
    }
  }
  if (stale == nullptr) stale = &plans_[context.step % kMaxPlans];
  AttentionPlan& plan = *stale;
  plan.layout = layout;
  plan.step = context.step;
  const size_t rows = static_cast<size_t>(std::max(context.num_tokens(), context.max_tokens));
  const size_t max_units = rows * static_cast<size_t>(layout.num_heads);
  plan.units.reserve(max_units);
  plan.items.reserve(max_units + static_cast<size_t>(2 * kItemsPerThread * context.num_threads()));
  MakeUnits(context.batch, plan);
  MakeItems(context.num_threads(), plan);
  if (num_arrivals_ < max_units) {
    arrivals_ = std::make_unique<LastArrival<>[]>(max_units);
    num_arrivals_ = max_units;
  }
  return plan;
}

}  // namespace sluice
