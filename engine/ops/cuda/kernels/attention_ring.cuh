// Brings keys and values from the pages of the cache into shared memory, ahead of their use, by asynchronous copies.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/cuda/kernels/attention_rows.cuh"
#include "engine/ops/cuda/kernels/attention_tile.cuh"
#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"

namespace sluice::cuda {

// Copies rows of keys or values of one sequence, for kThreads threads that work together: a warp, or a whole block.
// Blocks without a key in `reach` are not looked up; keys outside it become zeros, but for those before it that share 8
// keys with it (they are cached values like any other).
template <int kThreads>
class SequencePages {
 public:
  __device__ SequencePages(const AttentionKernelArgs& args, int32_t sequence, const KeyRange& reach)
      : args_(args),
        table_(sequence * args.group.stride),
        block_bytes_(static_cast<int32_t>(args.kv.block_elements() * 2)),
        reach_(reach) {}

  // Before copies out of another item than `key`'s: each lane of a warp keeps the block of 8 of its 256 keys.
  __device__ __forceinline__ void FindBlocks(int32_t key) {
    key = key / kAttentionItem * kAttentionItem + static_cast<int32_t>(threadIdx.x) % 32 * kPageKeys;
    const bool in_reach = key + kPageKeys > reach_.begin && key < reach_.end;
    block_ = in_reach ? args_.group.block_tables[table_ + key / args_.kv.block_size] : -1;
  }

  // Begins to copy kKeys rows of kDim 16-bit elements, a multiple of kKeys on from the item's first. `base`: where rows
  // of this kind and head begin in block 0.
  template <int kDim, int kKeys>
  __device__ __forceinline__ void Copy(const uint8_t* base, int32_t first_key, uint8_t* stage) const {
    constexpr int kRowCopies = kDim / 8;  // of 16 bytes
    constexpr int kPageCopies = kPageKeys * kRowCopies;
    const int thread = threadIdx.x % kThreads;
#pragma unroll
    for (int page = 0; page < kKeys / kPageKeys; ++page) {
      const int32_t key = first_key + page * kPageKeys;
      const int32_t block = __shfl_sync(0xffffffffu, block_, key % kAttentionItem / kPageKeys);
      const uint8_t* rows =
          base + int64_t{max(block, 0)} * block_bytes_ + int64_t{key & (args_.kv.block_size - 1)} * (kDim * 2);
#pragma unroll
      for (int first = 0; first < kPageCopies; first += kThreads) {
        const int copy = first + thread;
        if (first + kThreads > kPageCopies && copy >= kPageCopies) break;
        const int row = copy / kRowCopies;
        ptx::cp_async16(stage + (page * kPageKeys + row) * SharedRow(kDim) + copy % kRowCopies * 16, rows + copy * 16,
                        block >= 0 && key + row < reach_.end);
      }
    }
  }

  __device__ const KeyRange& reach() const { return reach_; }

  static __device__ __forceinline__ void Synchronize() {
    if constexpr (kThreads == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

 private:
  static constexpr int kPageKeys = 8;  // the smallest block: so many keys follow one another wherever they lie

  const AttentionKernelArgs& args_;
  const int32_t table_;  // where the sequence's begins
  const int32_t block_bytes_;
  const KeyRange reach_;
  int32_t block_ = -1;
};

// Tiles of a sequence and KV head, those that hold keys in `reach`, in a ring of half tiles.
template <int kDim, int kValueDim, int kThreads>
class HalfTileRing {
 public:
  static constexpr int kStageBytes = kHalfTile * SharedRow(kDim > kValueDim ? kDim : kValueDim);
  // What is in flight at a time covers the latency of memory, with one block on an SM, or two where a second has room.
  static constexpr int kStages = std::clamp(24 * 1024 / kStageBytes, 3, 8);
  struct alignas(128) Stages {
    uint8_t bytes[kStages][kStageBytes];
  };

  __device__ HalfTileRing(const AttentionKernelArgs& args, int32_t sequence, int32_t kv_head, const KeyRange& reach,
                          Stages& stages)
      : pages_(args, sequence, reach), stages_(stages) {
    const PagedKv& kv = args.kv;
    keys_ = static_cast<const uint8_t*>(kv.data) + int64_t{kv_head} * kv.block_size * (kDim * 2);
    values_ = static_cast<const uint8_t*>(kv.data) +
              (int64_t{kv.num_kv_heads} * kDim + int64_t{kv_head} * kValueDim) * kv.block_size * 2;
    tile_ = reach.begin / kAttentionTile * kAttentionTile;
    pages_.Synchronize();  // the last reader of the stages is done
    pages_.FindBlocks(tile_);
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) Fetch(i % 4, i);
  }

  // Half tile kPart of the next tile: two of keys, two of values. What the call before gave is done with. All threads
  // call, for 0, 1, 2, 3 in turn.
  template <int kPart>
  __device__ __forceinline__ const uint8_t* Next() {
    ptx::cp_async_wait<kStages - 2>();
    pages_.Synchronize();
    Fetch((kPart + kStages - 1) % 4, next_ > 0 ? next_ - 1 : kStages - 1);
    const uint8_t* stage = stages_.bytes[next_];
    next_ = next_ + 1 < kStages ? next_ + 1 : 0;
    return stage;
  }

  // After the last Next.
  __device__ void Finish() { ptx::cp_async_wait<0>(); }

 private:
  // Begins the copy of the next half tile, which is `part` of its tile. Beyond the last an empty group keeps the count.
  __device__ __forceinline__ void Fetch(int part, int stage_index) {
    if (tile_ < pages_.reach().end) {
      const int32_t key = tile_ + part % 2 * kHalfTile;
      uint8_t* stage = stages_.bytes[stage_index];
      if (part < 2) {
        pages_.template Copy<kDim, kHalfTile>(keys_, key, stage);
      } else {
        pages_.template Copy<kValueDim, kHalfTile>(values_, key, stage);
      }
      if (part == 3) {
        tile_ += kAttentionTile;
        if (tile_ % kAttentionItem == 0) pages_.FindBlocks(tile_);
      }
    }
    ptx::cp_async_commit();
  }

  SequencePages<kThreads> pages_;
  const uint8_t* keys_;
  const uint8_t* values_;
  Stages& stages_;
  int32_t tile_;  // of the next fetch
  int next_ = 0;  // stage
};

}  // namespace sluice::cuda
