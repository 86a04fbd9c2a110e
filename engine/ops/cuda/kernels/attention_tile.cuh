// Attention of a warp's 16 query rows over a tile of 64 keys, on tensor cores. All mma kernels are made of these
// functions, so that a row's arithmetic is the same in each: a score sums head_dim in steps of 16; the online softmax
// takes a tile at once; values are added in steps of 16 keys.
//
// A query row is a token and a head of a KV head's group. In an accumulator of mma.m16n8k16 lane l has rows l / 4 and
// l / 4 + 8, of each 8 columns the two from 2 (l % 4) on; arrays [2] below are of these two rows. Tiles of keys and
// values come in halves of 32 keys, in shared memory, a key a row, rows 16 bytes longer than their values: so the 8
// rows that ldmatrix reads at once lie in different banks.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/attention_rows.cuh"
#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"

namespace sluice::cuda {

inline constexpr int kMmaRows = 16;
inline constexpr int kHalfTile = kAttentionTile / 2;

// Bytes of a row of `dim` 16-bit elements in shared memory.
__host__ __device__ constexpr int SharedRow(int dim) { return dim * 2 + 16; }

template <class Pair>
__device__ __forceinline__ uint32_t WordOf(Pair pair) {
  static_assert(sizeof(Pair) == sizeof(uint32_t));
  uint32_t word;
  memcpy(&word, &pair, sizeof word);
  return word;
}

// The 16-bit types of a cache.
template <class T>
struct MmaElement;

template <>
struct MmaElement<__nv_bfloat16> {
  static __device__ uint32_t Pack(float low, float high) { return WordOf(__floats2bfloat162_rn(low, high)); }
  static __device__ uint32_t FromBf16(uint32_t pair) { return pair; }
  static __device__ void Multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    ptx::mma_m16n8k16_bf16(d, a, b);
  }
};

template <>
struct MmaElement<__half> {
  static __device__ uint32_t Pack(float low, float high) { return WordOf(__floats2half2_rn(low, high)); }
  static __device__ uint32_t FromBf16(uint32_t pair) {
    return Pack(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  }
  static __device__ void Multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    ptx::mma_m16n8k16_f16(d, a, b);
  }
};

// Where the query of a row and head begins; null without a head (-1).
__device__ __forceinline__ const __nv_bfloat16* QueryOf(const AttentionKernelArgs& args, int32_t row, int32_t head) {
  if (head < 0) return nullptr;
  return static_cast<const __nv_bfloat16*>(args.q) + (int64_t{row} * args.row_heads + head) * args.kv.head_dim;
}

// The rows' queries as operands of the mma. Wide ones would not fit the registers beside the output and stay in shared
// memory.
template <class T, int kDim>
class QueryRows {
 public:
  static constexpr bool kInRegisters = kDim <= 128;
  struct alignas(16) Shared {
    uint8_t bytes[kInRegisters ? 16 : kMmaRows * SharedRow(kDim)];
  };

  // rows: the lane's two rows, null for none. All lanes of the warp call; one of `parts` warps that share the rows
  // loads its part of them. The readers of `shared` wait for all writers.
  __device__ void Load(const __nv_bfloat16* const (&rows)[2], Shared& shared, int part = 0, int parts = 1) {
    const int lane = threadIdx.x % 32, group = lane / 4, column = lane % 4 * 2;
    shared_ = shared.bytes + lane % 16 * SharedRow(kDim) + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      if (!kInRegisters && step % parts != part) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat16* row = rows[i % 2];
        const int at = step * 16 + column + i / 2 * 8;
        const uint32_t pair =
            row != nullptr ? MmaElement<T>::FromBf16(*reinterpret_cast<const uint32_t*>(row + at)) : uint32_t{0};
        if constexpr (kInRegisters) {
          registers_[step][i] = pair;
        } else {
          *reinterpret_cast<uint32_t*>(shared.bytes + (group + i % 2 * 8) * SharedRow(kDim) + at * 2) = pair;
        }
      }
    }
  }

  // Dimensions 16 step .. 16 step + 15.
  __device__ __forceinline__ void Get(int step, uint32_t (&a)[4]) const {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = registers_[step][i];
    } else {
      ptx::ldmatrix_x4(a, shared_ + step * 32);
    }
  }

 private:
  uint32_t registers_[kInRegisters ? kDim / 16 : 1][4];
  const uint8_t* shared_ = nullptr;
};

// Dot products of the rows with kKeys keys, into columns of 8 from `first` on.
template <class T, int kDim, int kKeys>
__device__ __forceinline__ void ScoreKeys(const QueryRows<T, kDim>& query, const uint8_t* keys, const int first,
                                          float (&scores)[8][4]) {
  const int lane = threadIdx.x % 32;
  keys += (lane / 16 * 8 + lane % 8) * SharedRow(kDim) + lane / 8 % 2 * 16;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[first + n][i] = 0;
  }
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t a[4];
    query.Get(step, a);
#pragma unroll
    for (int n = 0; n < kKeys / 8; n += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, keys + n * 8 * SharedRow(kDim) + step * 32);
      MmaElement<T>::Multiply(scores[first + n], a, {b[0], b[1]});
      MmaElement<T>::Multiply(scores[first + n + 1], a, {b[2], b[3]});
    }
  }
}

// What the rows have summed over one item.
template <int kValueDim>
struct ItemState {
  SoftmaxState rows[2];  // sums: of the lane's own columns, until FinishItem
  float values[kValueDim / 8][4];

  __device__ void Begin() {
    rows[0] = rows[1] = {};
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] = 0;
    }
  }

  __device__ void Finish() {
#pragma unroll
    for (SoftmaxState& row : rows) {
      row.sum += __shfl_xor_sync(0xffffffffu, row.sum, 1);
      row.sum += __shfl_xor_sync(0xffffffffu, row.sum, 2);
    }
  }
};

// Dot products with the 64 keys from `tile` on become scores, -inf where a row does not see the key. `all_visible`:
// both rows of every lane see all.
__device__ __forceinline__ void FinishScores(const ScoreRule& rule, int32_t tile, const KeyRange (&visible)[2],
                                             bool all_visible, float (&scores)[8][4]) {
  rule.Apply(scores);
  if (all_visible) return;
  const int32_t first = tile + static_cast<int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t key = first + n * 8 + i % 2;
      if (key < visible[i / 2].begin || key >= visible[i / 2].end) scores[n][i] = -INFINITY;
    }
  }
}

// Online softmax over a tile: scores become weights, as operands of four steps of 16 keys. Changes nothing for a row
// that sees none of the keys.
template <class T, int kValueDim>
__device__ __forceinline__ void Weigh(const float (&scores)[8][4], ItemState<kValueDim>& state,
                                      uint32_t (&weights)[4][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    SoftmaxState& row = state.rows[r];
    float max = row.max;
#pragma unroll
    for (int n = 0; n < 8; ++n) max = fmaxf(max, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    const float base = max == -INFINITY ? 0 : max;
    const float keep = ptx::exp2(row.max - base);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float low = ptx::exp2(scores[n][2 * r] - base), high = ptx::exp2(scores[n][2 * r + 1] - base);
      sum += low;
      sum += high;
      weights[n / 2][n % 2 * 2 + r] = MmaElement<T>::Pack(low, high);
    }
    row = {max, fmaf(row.sum, keep, sum)};
#pragma unroll
    for (int n = 0; n < kValueDim / 8; ++n) {
      state.values[n][2 * r] *= keep;
      state.values[n][2 * r + 1] *= keep;
    }
  }
}

// Adds the values of kKeys keys by the weights of as many steps of 16, from `first` on. kRow: bytes of a row of values.
template <class T, int kKeys, int kRow, int kValueDim>
__device__ __forceinline__ void AddValues(const uint32_t (&weights)[4][4], const int first, const uint8_t* values,
                                          ItemState<kValueDim>& state) {
  const int lane = threadIdx.x % 32;
  values += lane % 16 * kRow + lane / 16 * 16;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
#pragma unroll
    for (int n = 0; n < kValueDim / 8; n += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, values + step * 16 * kRow + n * 16);
      MmaElement<T>::Multiply(state.values[n], weights[first + step], {b[0], b[1]});
      MmaElement<T>::Multiply(state.values[n + 1], weights[first + step], {b[2], b[3]});
    }
  }
}

// The tile of keys from `tile` on, for a warp. `seen`: any of its rows sees any of them. Ring: a HalfTileRing.
template <class T, int kDim, int kValueDim, class Ring>
__device__ __forceinline__ void RunTile(Ring& ring, const QueryRows<T, kDim>& query, const ScoreRule& rule,
                                        int32_t tile, const KeyRange (&visible)[2], bool seen, bool all_visible,
                                        ItemState<kValueDim>& state) {
  float scores[8][4];
  uint32_t weights[4][4];
  const uint8_t* keys = ring.template Next<0>();
  if (seen) ScoreKeys<T, kDim, kHalfTile>(query, keys, 0, scores);
  keys = ring.template Next<1>();
  if (seen) {
    ScoreKeys<T, kDim, kHalfTile>(query, keys, 4, scores);
    FinishScores(rule, tile, visible, all_visible, scores);
    Weigh<T>(scores, state, weights);
  }
  const uint8_t* values = ring.template Next<2>();
  if (seen) AddValues<T, kHalfTile, SharedRow(kValueDim)>(weights, 0, values, state);
  values = ring.template Next<3>();
  if (seen) AddValues<T, kHalfTile, SharedRow(kValueDim)>(weights, 2, values, state);
}

// The tiles with keys in `reach`, item by item: run(tile) for each, join(first, last) after each item.
template <int kColumns, class Run, class Join>
__device__ __forceinline__ void RunItems(const KeyRange& reach, ItemState<kColumns>& state, Run run, Join join) {
  int32_t tile = reach.begin / kAttentionTile * kAttentionTile;
  for (bool first = true; tile < reach.end; first = false) {
    const int32_t end = min((tile / kAttentionItem + 1) * kAttentionItem, reach.end);
    state.Begin();
    for (; tile < end; tile += kAttentionTile) run(tile);
    state.Finish();
    join(first, end == reach.end);
  }
}

}  // namespace sluice::cuda
