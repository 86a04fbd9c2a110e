#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/ops.h"

namespace sluice {

// How many rows of a sequence in a step are at positions of its prompt. They come first, for positions ascend.
inline int32_t PromptRows(const BatchView& batch, int32_t sequence) {
  const auto s = static_cast<size_t>(sequence);
  const int32_t first = batch.row_starts[s], count = batch.row_starts[s + 1] - first;
  if (count == 0) return 0;
  return std::clamp(batch.prompt_lens[s] - batch.positions[static_cast<size_t>(first)], 0, count);
}

}  // namespace sluice
