// Drives the register tiles over one panel of weights: the loop that every linear layer is made of.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/cpu/linear_kernels.h"
#include "engine/ops/cpu/packed_linear.h"

namespace sluice {

// How far a tile reads ahead of itself in a panel's stream. Measured on DDR5: 4 KiB is too short once a tile does real
// work.
inline constexpr int64_t kPrefetchDistance = 12 << 10;

// The prefetch of group `group` of `num_groups`. A single group streams ahead of itself, into the next panel at the
// end. Several groups read the panel from cache, so each fetches its share of the next panel while it computes. With
// very many groups memory is no concern.
inline PrefetchAhead PrefetchFor(const PanelView& panel, int64_t k, int group, int num_groups) {
  const int64_t steps = (k + kBlock - 1) / kBlock;
  const int64_t lines = (panel.bytes / 64 + steps - 1) / steps;  // per 32 k
  if (num_groups == 1) return {panel.data + kPrefetchDistance, static_cast<int>(lines)};
  const int64_t share = num_groups <= 2 * lines ? (lines + num_groups - 1) / num_groups : 0;
  return {panel.data + panel.bytes + group * share * 64 * steps, static_cast<int>(share)};
}

// Multiplies rows [0, num_rows) of `activations` (k values each) with the panel. For each group of rows calls
//   epilogue(int first_row, int rows, const float* tile)    tile[r * 32 + lane] belongs to row first_row + r
// Groups are of near-equal size (8 rows of at most 6 run as 4 + 4). A row's result does not depend on its group.
// REQUIRES: kernels.Tile(activations.type, panel.type) exists, num_rows >= 1.
template <class Epilogue>
void RunPanel(const LinearKernels& kernels, const PanelView& panel, int64_t k, const ActivationRows& activations,
              int num_rows, Epilogue&& epilogue) {
  alignas(64) float tile[kMaxTileRows * kPanelRows];
  const TileFunction run = kernels.Tile(activations.type, panel.type);
  const int max_rows = kernels.MaxRows(activations.type);
  const int num_groups = (num_rows + max_rows - 1) / max_rows;
  for (int group = 0; group < num_groups; ++group) {
    const int first = static_cast<int>(int64_t{num_rows} * group / num_groups);
    const int rows = static_cast<int>(int64_t{num_rows} * (group + 1) / num_groups) - first;
    run(panel.data, k, activations.From(first).data, activations.stride_bytes, rows, tile,
        PrefetchFor(panel, k, group, num_groups));
    epilogue(first, rows, static_cast<const float*>(tile));
  }
}

}  // namespace sluice
