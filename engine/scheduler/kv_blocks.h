// How many blocks of the KV pool sequences take. Admission, the refusal of what can never run, the size of the pool and
// the accounting check all ask here.
//
// A sequence has a block table per KV group. Computing rows from position p on, a group's table holds the blocks from
// the one of FirstVisibleKey(p) to that of the last row: no row reaches a key before, now or later. So a window or
// chunk group needs room for what one row sees and for the rows of the step beside it, a full group for everything.
#pragma once

#include <cstdint>

#include "engine/base/layer_types.h"
#include "engine/engine_options.h"

namespace sluice {

// Blocks that hold `num_tokens` tokens.
inline int32_t BlocksFor(int64_t num_tokens, int32_t block_size) {
  return int32_t((num_tokens + block_size - 1) / block_size);
}

// Blocks at the front of a table with `mask` that no query at `position` or later reaches.
inline int32_t UnreachableBlocks(const AttentionMask& mask, int32_t position, int32_t block_size) {
  return FirstVisibleKey(mask, position) / block_size;
}

// The most blocks that a table with `mask` holds at a time while `num_tokens` tokens are computed from the first on, in
// steps of up to options.max_num_batched_tokens rows. Never falls as `num_tokens` grows. Exact for windows in general
// position; where borders of chunks are borders of blocks it may be one more than needed.
int32_t PeakBlocks(const AttentionMask& mask, int64_t num_tokens, const EngineOptions& options);

// Entries of a table with `mask` that has room for all `num_tokens` tokens that a sequence has, of which num_dropped entries
// are out of sight: for them a block each, or as many as it holds at a time.
int32_t EntriesToCompute(const AttentionMask& mask, int64_t num_tokens, int32_t num_dropped, const EngineOptions& options);

// PeakBlocks over all tables of a sequence.
int64_t PeakBlocks(int64_t num_tokens, const EngineOptions& options);

// The most blocks that all tables of a sequence hold at a time while it has up to `num_tokens` tokens and gets one in
// each step: of a window or chunk fewer than while a prompt is computed.
int64_t DecodeBlocks(int64_t num_tokens, const EngineOptions& options);

// The most tokens, up to options.max_model_len, whose keys and values a sequence can hold if it has the whole pool to
// itself; 0: not even one.
int32_t LongestSequence(const EngineOptions& options);

}  // namespace sluice
