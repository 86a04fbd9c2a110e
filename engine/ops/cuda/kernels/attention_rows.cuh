// What all attention kernels do alike: which keys a row sees, how a dot product becomes a score, how items are merged.
// Products that are added to something are FMAs by name, others are kept apart from additions by name: the compiler
// must not fuse them in one kernel and not in another.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"

namespace sluice::cuda {

// Keys [begin, end) by position.
struct KeyRange {
  int32_t begin, end;
};

__device__ inline KeyRange VisibleKeys(const AttentionMask& mask, int32_t position) {
  return {FirstVisibleKey(mask, position), position + 1};
}

// Whether attention takes the row; it does not take padding.
__device__ inline bool TakesRow(const StepArrays& step, int32_t row, int32_t sequence) {
  return sequence >= step.first_seq && sequence < step.end_seq && row >= step.row_starts[sequence] &&
         row < step.row_ends[sequence];
}

__device__ inline int32_t RowsTaken(const StepArrays& step, int32_t sequence) {
  return step.row_ends[sequence] - step.row_starts[sequence];
}

__device__ inline bool Contains(const KeyRange& range, int32_t begin, int32_t end) {
  return begin >= range.begin && end <= range.end;
}

// Scores are in units of log 2: softmax(x) is 2^(x * log2(e)) over its sum.
inline constexpr float kLog2E = 1.4426950408889634f;

class ScoreRule {
 public:
  __device__ ScoreRule(float scale, float softcap)
      : inner_(softcap > 0 ? scale / softcap : scale * kLog2E), outer_(softcap > 0 ? softcap * kLog2E : 0) {}

  template <int kRows, int kColumns>
  __device__ __forceinline__ void Apply(float (&dots)[kRows][kColumns]) const {
#pragma unroll
    for (int i = 0; i < kRows * kColumns; ++i) {
      float& x = dots[i / kColumns][i % kColumns];
      x = __fmul_rn(x, inner_);
      if (outer_ > 0) x = __fmul_rn(outer_, tanhf(x));
    }
  }

 private:
  float inner_, outer_;
};

// The softmax over some keys of a row, without its values: the largest score, and the sum of 2^(score - max).
struct SoftmaxState {
  float max = -INFINITY, sum = 0;
};

// What the values of a total and of an item are multiplied by when the item joins.
struct MergeFactors {
  float total, item;
};

// An item that the row sees nothing of changes no bit of the total.
__device__ inline MergeFactors Merge(SoftmaxState& total, const SoftmaxState& item) {
  const float max = fmaxf(total.max, item.max);
  if (max == -INFINITY) return {1, 0};
  const MergeFactors factors = {ptx::exp2(total.max - max), ptx::exp2(item.max - max)};
  total = {max, fmaf(item.sum, factors.item, __fmul_rn(total.sum, factors.total))};
  return factors;
}

__device__ inline float Merge(float total, float item, const MergeFactors& factors) {
  return fmaf(item, factors.item, __fmul_rn(total, factors.total));
}

// What the values of a row are multiplied by in the end. A sink is one more score, of natural units.
__device__ inline float FinalFactor(const SoftmaxState& state, const float* sinks, int32_t head) {
  const float sink = sinks != nullptr ? ptx::exp2(__fmul_rn(sinks[head], kLog2E) - state.max) : 0;
  return 1 / (state.sum + sink);
}

// Heads and dimensions as the kernels see them.
__host__ __device__ inline int32_t ValueDim(const AttentionKernelArgs& args) {
  return args.latent_value_dim > 0 ? args.latent_value_dim : args.kv.value_head_dim;
}

// Of a power of two.
__device__ inline int32_t Log2(int32_t x) { return __ffs(x) - 1; }

// Elements of the cache at which the key (value) of `key` of a sequence begins. The block must be there.
class CacheOffsets {
 public:
  __device__ CacheOffsets(const AttentionKernelArgs& args, int32_t sequence, int32_t kv_head)
      : table_(args.group.block_tables + int64_t{sequence} * args.group.stride),
        block_size_(args.kv.block_size),
        block_shift_(Log2(args.kv.block_size)),
        key_dim_(args.kv.head_dim),
        value_dim_(args.latent_value_dim > 0 ? args.kv.head_dim : args.kv.value_head_dim),
        block_elements_(args.kv.block_elements()),
        keys_(kv_head * args.kv.block_size * args.kv.head_dim),
        values_(args.latent_value_dim > 0
                    ? keys_
                    : (args.kv.num_kv_heads * args.kv.head_dim + kv_head * args.kv.value_head_dim) *
                          args.kv.block_size) {}

  __device__ int64_t Key(int32_t key) const { return Block(key) + keys_ + Within(key) * key_dim_; }
  __device__ int64_t Value(int32_t key) const { return Block(key) + values_ + Within(key) * value_dim_; }

 private:
  __device__ int64_t Block(int32_t key) const { return table_[key >> block_shift_] * block_elements_; }
  __device__ int32_t Within(int32_t key) const { return key & (block_size_ - 1); }

  const int32_t* table_;
  int32_t block_size_, block_shift_, key_dim_, value_dim_;
  int64_t block_elements_;
  int32_t keys_, values_;
};

}  // namespace sluice::cuda
