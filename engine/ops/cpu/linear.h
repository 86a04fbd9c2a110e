// A linear layer over all rows of a step, in parallel over panels of weights and blocks of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/ops/cpu/cpu_context.h"
#include "engine/ops/cpu/operand.h"
#include "engine/ops/cpu/run_panel.h"

namespace sluice {

// Rows that go through a panel together. Their activations and what an epilogue keeps of them fit the second-level
// cache; small enough to share out.
inline constexpr int kRowBlock = 256;

// Runs fn(group, first_row, num_rows, worker) for each group of panels [0, num_groups) and block of rows, the blocks of
// a group in a row: its weights stay in the first-level cache.
template <class Fn>
void ForPanelGroups(CpuContext& context, int64_t num_groups, int num_rows, std::span<const uint8_t> next, Fn&& fn) {
  const int blocks = (num_rows + kRowBlock - 1) / kRowBlock;
  context.pool.ParallelFor(
      static_cast<uint32_t>(num_groups * blocks),
      [&](uint32_t chunk, int worker) {
        const int first = static_cast<int>(chunk) % blocks * kRowBlock;
        fn(static_cast<int64_t>(chunk) / blocks, first, std::min(num_rows - first, kRowBlock), worker);
      },
      absl::MakeConstSpan(next.data(), next.size()));
}

// epilogue(panel, row, tile_row): tile_row[lane] = output `panel.first_row + lane` of the row.
template <class Epilogue>
void RunRows(CpuContext& context, const PackedLinear& weights, const Operand& operand, int64_t panel_index,
             int first_row, int num_rows, int worker, Epilogue&& epilogue) {
  const PanelView panel = weights.panel(panel_index);
  RunPanel(context.linear, panel, weights.k(), operand.Rows(worker, panel.data).From(first_row), num_rows,
           [&](int first, int rows, const float* tile) {
             for (int r = 0; r < rows; ++r) epilogue(panel, first_row + first + r, tile + r * kPanelRows);
           });
}

template <class Epilogue>
void RunLinear(CpuContext& context, const PackedLinear& weights, const Operand& operand, int num_rows,
               std::span<const uint8_t> next, Epilogue&& epilogue) {
  ForPanelGroups(context, weights.num_panels(), num_rows, next, [&](int64_t panel, int first, int count, int worker) {
    RunRows(context, weights, operand, panel, first, count, worker, epilogue);
  });
}

}  // namespace sluice
