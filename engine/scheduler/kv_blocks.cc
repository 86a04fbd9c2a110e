#include "engine/scheduler/kv_blocks.h"

#include <algorithm>

namespace sluice {

namespace {

// The most that a table holds in steps of up to `rows` rows.
int32_t PeakBlocksInSteps(const AttentionMask& mask, int64_t num_tokens, int32_t rows, int32_t block_size) {
  const int32_t all = BlocksFor(num_tokens, block_size);
  if (mask.kind == MaskKind::kFull) return all;
  // The first row of a step sees up to size - 1 keys before it. Where the first of these tokens is the last of its
  // block, the others fill further blocks.
  const int64_t span = int64_t{mask.size} - 1 + rows;
  return int32_t(std::min<int64_t>(all, 1 + (span - 1 + block_size - 1) / block_size));
}

}  // namespace

int32_t PeakBlocks(const AttentionMask& mask, int64_t num_tokens, const EngineOptions& options) {
  return PeakBlocksInSteps(mask, num_tokens, options.max_num_batched_tokens, options.block_size);
}

int32_t EntriesToCompute(const AttentionMask& mask, int64_t num_tokens, int32_t num_dropped, const EngineOptions& options) {
  return int32_t(std::min<int64_t>(BlocksFor(num_tokens, options.block_size),
                                   int64_t{num_dropped} + PeakBlocks(mask, num_tokens, options)));
}

int64_t PeakBlocks(int64_t num_tokens, const EngineOptions& options) {
  int64_t blocks = 0;
  for (const AttentionMask& mask : options.kv_groups) blocks += PeakBlocks(mask, num_tokens, options);
  return blocks;
}

int64_t DecodeBlocks(int64_t num_tokens, const EngineOptions& options) {
  int64_t blocks = 0;
  for (const AttentionMask& mask : options.kv_groups) {
    blocks += PeakBlocksInSteps(mask, num_tokens, /*rows=*/1, options.block_size);
  }
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
