#include "engine/ops/cuda/step_graphs.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr int32_t kNarrowest = 16;  // blocks
constexpr int32_t kWidthFactor = 4;

std::vector<int32_t> RowCounts(int32_t most) {
  std::vector<int32_t> counts;
  for (int32_t rows = 1; rows < most; rows += rows < 8 ? rows : rows < 256 ? 8 : 16) counts.push_back(rows);
  counts.push_back(most);
  return counts;
}

std::vector<int32_t> Widths(int32_t widest, int32_t factor) {
  std::vector<int32_t> widths = {widest};
  while (widths.back() / factor >= kNarrowest) widths.push_back(widths.back() / factor);
  std::reverse(widths.begin(), widths.end());
  return widths;
}

// The first of `sizes` that is no smaller.
std::optional<int32_t> Fitting(const std::vector<int32_t>& sizes, int32_t size) {
  const auto found = std::lower_bound(sizes.begin(), sizes.end(), size);
  return found != sizes.end() ? std::optional(*found) : std::nullopt;
}

}  // namespace

void StepGraphs::SetLimits(const StepLimits& limits) {
  rows_ = RowCounts(std::max(1, std::min({limits.max_tokens, limits.max_seqs, limits.max_logits})));
  const int32_t widest = std::max(limits.max_blocks_per_seq, 1);
  int32_t factor = kWidthFactor;
  widths_ = Widths(widest, factor);
  while (widths_.size() > 1 && rows_.size() * widths_.size() > size_t{kMost}) widths_ = Widths(widest, factor *= 2);
  shapes_.clear();
  for (const int32_t rows : rows_) {
    for (const int32_t width : widths_) shapes_.push_back({rows, rows, rows, width});
  }
  graphs_.clear();
}

std::optional<StepShape> StepGraphs::ShapeFor(const StepShape& shape) const {
  if (shape.num_tokens != shape.num_seqs || shape.num_logits != shape.num_tokens) return std::nullopt;
  const std::optional<int32_t> rows = Fitting(rows_, shape.num_tokens);
  const std::optional<int32_t> width = Fitting(widths_, shape.block_table_stride);
  if (!rows.has_value() || !width.has_value()) return std::nullopt;
  return StepShape{*rows, *rows, *rows, *width};
}

}  // namespace sluice
