// Brings keys and values of one sequence and KV head from the pages of the cache into shared memory: tile after tile in
// a ring of half tiles, filled ahead by asynchronous copies.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/cuda/kernels/attention_rows.cuh"
#include "engine/ops/cuda/kernels/attention_tile.cuh"
#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"

namespace sluice::cuda {

// Where the keys and values of a head begin in block 0 of a cache of 16-bit elements.
struct HeadBases {
  const uint8_t* keys;
  const uint8_t* values;
  int64_t block_bytes;

  __device__ HeadBases(const PagedKv& kv, int32_t kv_head) : block_bytes(kv.block_elements() * 2) {
    const uint8_t* data = static_cast<const uint8_t*>(kv.data);
    keys = data + int64_t{kv_head} * kv.block_size * kv.head_dim * 2;
    values = data + (int64_t{kv.num_kv_heads} * kv.head_dim + int64_t{kv_head} * kv.value_head_dim) * kv.block_size * 2;
  }
};

// Of kThreads threads that work together: a warp, or a whole block.
template <int kDim, int kValueDim, int kThreads>
class HalfTileRing {
 public:
  static constexpr int kStageBytes = kHalfTile * SharedRow(kDim > kValueDim ? kDim : kValueDim);
  // What is in flight at a time covers the latency of memory, with one block on an SM, or two where a second has room.
  static constexpr int kStages = std::clamp(24 * 1024 / kStageBytes, 3, 8);
  struct alignas(128) Stages {
    uint8_t bytes[kStages][kStageBytes];
  };

  // Begins to bring the tiles that hold keys in `reach`. Blocks without such a key are not looked up; keys outside it
  // are zeros, but for those before it that share 8 keys with it (they are cached values like any other).
  __device__ HalfTileRing(const AttentionKernelArgs& args, int32_t sequence, int32_t kv_head, const KeyRange& reach,
                          Stages& stages)
      : bases_(args.kv, kv_head),
        table_(args.group.block_tables + int64_t{sequence} * args.group.stride),
        block_size_(args.kv.block_size),
        reach_(reach),
        stages_(stages) {
    fetch_tile_ = reach.begin / kAttentionTile * kAttentionTile;
    Synchronize();  // the last reader of the stages is done
    FindBlocks();
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) Fetch(i % 4);
  }

  // Half tile kPart of the next tile: two of keys, two of values. What the call before gave is done with. All threads
  // call, for 0, 1, 2, 3 in turn.
  template <int kPart>
  __device__ __forceinline__ const uint8_t* Next() {
    ptx::cp_async_wait<kStages - 2>();
    Synchronize();
    Fetch((kPart + kStages - 1) % 4);
    const uint8_t* stage = stages_.bytes[next_stage_];
    next_stage_ = next_stage_ + 1 < kStages ? next_stage_ + 1 : 0;
    return stage;
  }

  // After the last Next.
  __device__ void Finish() { ptx::cp_async_wait<0>(); }

 private:
  static constexpr int kPageKeys = 8;  // the smallest block: so many keys follow one another wherever they lie

  static __device__ __forceinline__ void Synchronize() {
    if constexpr (kThreads == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  // Each lane of a warp knows the block of 8 of the 256 keys of an item.
  __device__ __forceinline__ void FindBlocks() {
    const int32_t key =
        fetch_tile_ / kAttentionItem * kAttentionItem + static_cast<int32_t>(threadIdx.x) % 32 * kPageKeys;
    const bool in_reach = key + kPageKeys > reach_.begin && key < reach_.end;
    block_ = in_reach ? table_[key / block_size_] : -1;
  }

  // Begins the copy of the next half tile, which is `part` of its tile. Beyond the last an empty group keeps the count.
  __device__ __forceinline__ void Fetch(int part) {
    if (fetch_tile_ < reach_.end) {
      const int32_t key = fetch_tile_ + part % 2 * kHalfTile;
      if (part < 2) {
        Copy<kDim>(bases_.keys, key);
      } else {
        Copy<kValueDim>(bases_.values, key);
      }
      if (part == 3) {
        fetch_tile_ += kAttentionTile;
        if (fetch_tile_ % kAttentionItem == 0) FindBlocks();
      }
    }
    ptx::cp_async_commit();
    fetch_stage_ = fetch_stage_ + 1 < kStages ? fetch_stage_ + 1 : 0;
  }

  template <int kRowDim>
  __device__ __forceinline__ void Copy(const uint8_t* base, int32_t first_key) {
    constexpr int kRowCopies = kRowDim / 8;  // of 16 bytes
    constexpr int kPageCopies = kPageKeys * kRowCopies;
    const int thread = threadIdx.x % kThreads;
    uint8_t* stage = stages_.bytes[fetch_stage_];
#pragma unroll
    for (int page = 0; page < kHalfTile / kPageKeys; ++page) {
      const int32_t key = first_key + page * kPageKeys;
      const int32_t block = __shfl_sync(0xffffffffu, block_, key % kAttentionItem / kPageKeys);
      const uint8_t* rows =
          base + max(block, 0) * bases_.block_bytes + int64_t{key & (block_size_ - 1)} * (kRowDim * 2);
#pragma unroll
      for (int first = 0; first < kPageCopies; first += kThreads) {
        const int copy = first + thread;
        if (first + kThreads > kPageCopies && copy >= kPageCopies) break;
        const int row = copy / kRowCopies;
        ptx::cp_async16(stage + (page * kPageKeys + row) * SharedRow(kRowDim) + copy % kRowCopies * 16,
                        rows + copy * 16, block >= 0 && key + row < reach_.end);
      }
    }
  }

  const HeadBases bases_;
  const int32_t* table_;
  const int32_t block_size_;
  const KeyRange reach_;
  Stages& stages_;
  int32_t fetch_tile_, block_;
  int fetch_stage_ = 0, next_stage_ = 0;
};

}  // namespace sluice::cuda
