#include "engine/scheduler/kv_blocks.h"

#include <algorithm>

namespace sluice {

int32_t PeakBlocks(const AttentionMask& mask, int64_t num_tokens, const EngineOptions& options) {
  const int32_t all = BlocksFor(num_tokens, options.block_size);
  if (mask.kind == MaskKind::kFull) return all;
  // The first row of a step sees up to size - 1 keys before it. Where the first of these tokens is the last of its
  // block, the others fill further blocks.
  const int64_t span = int64_t{mask.size} - 1 + options.max_num_batched_tokens;
  return int32_t(std::min<int64_t>(all, 1 + (span - 1 + options.block_size - 1) / options.block_size));
}

int64_t PeakBlocks(int64_t num_tokens, const EngineOptions& options) {
  int64_t blocks = 0;
  for (const AttentionMask& mask : options.kv_groups) blocks += PeakBlocks(mask, num_tokens, options);
  return blocks;
}

int32_t LongestSequence(const EngineOptions& options) {
  int32_t fits = 0, too_long = options.max_model_len;
  if (PeakBlocks(too_long, options) <= options.num_blocks) return too_long;
  while (too_long - fits > 1) {
    const int32_t middle = fits + (too_long - fits) / 2;
    (PeakBlocks(middle, options) <= options.num_blocks ? fits : too_long) = middle;
  }
  return fits;
}

}  // namespace sluice
