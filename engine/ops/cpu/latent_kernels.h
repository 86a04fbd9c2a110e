// Attention of sixteen heads of one row over a tile of latent keys, which are their own values: scores, online softmax,
// weighted keys. A lane is a head, so keys are broadcast and nothing is reduced across lanes.
//
// Per head the operations and their order are fixed: a score is one chain of FMAs over the key, the softmax of a tile
// is taken at once, keys are added token by token. Register blocks: kLatentBlock tokens of scores, kLatentBlock columns
// of values.
#pragma once

#include "engine/ops/cpu/float_kernels.h"
#include "engine/ops/cpu/vec_math.h"

namespace sluice {
namespace {

#if SLUICE_VEC == 512
constexpr int kLatentBlock = 16;  // accumulators of 32 registers
#else
constexpr int kLatentBlock = 4;  // 8 of 16
#endif

// scores[i] for tokens i of a page from `keys` = page + first token on.
inline void LatentScores(const float* keys, int key_dim, const float* q, float* scores) {
  Vec s[kLatentBlock];
#pragma GCC unroll 16
  for (int i = 0; i < kLatentBlock; ++i) s[i] = Set(0);
  for (int d = 0; d < key_dim; ++d, keys += kPageTokens) {
    const Vec x = Load(q + d * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kLatentBlock; ++i) s[i] = Fma(Set(keys[i]), x, s[i]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLatentBlock; ++i) Store(scores + i * kLanes, s[i]);
}

// Scores become weights in place; returns the factor by which what the state has summed up so far shrinks.
inline Vec LatentSoftmax(const LatentTile& tile, float* scores, float* state) {
  const Vec old_max = Load(state);
  Vec max = old_max, total = Set(0);
  for (int t = tile.first_token; t < tile.end_token; ++t) max = Max(Load(scores + t * kLanes), max);
  for (int t = tile.first_token; t < tile.end_token; ++t) {
    const Vec e = ExpUpTo88(Sub(Load(scores + t * kLanes), max));
    total = Add(total, e);
    Store(scores + t * kLanes, e);
  }
  const Vec shrink = ExpUpTo88(Sub(old_max, max));
  Store(state, max);
  Store(state + kLanes, Fma(Load(state + kLanes), shrink, total));
  return shrink;
}

// values[i] = shrink * values[i] + weights * key values of columns column .. column + C. Meanwhile fetches the same
// columns of the tile to come.
template <int C>
void WeighLatents(const LatentTile& tile, int column, const float* weights, Vec shrink, float* values) {
  Vec acc[C];
#pragma GCC unroll 16
  for (int i = 0; i < C; ++i) acc[i] = Mul(Load(values + i * kLanes), shrink);
  for (int page = tile.first_token / kPageTokens; page * kPageTokens < tile.end_token; ++page) {
    const int first = page * kPageTokens;
    const int begin = tile.first_token > first ? tile.first_token - first : 0;
    const int end = tile.end_token - first < kPageTokens ? tile.end_token - first : kPageTokens;
    const float* keys = tile.pages[page] + column * kPageTokens;
    const uint8_t* next = tile.next_pages[page] + column * kPageTokens * tile.next_value_bytes;
    for (int t = begin; t < end; ++t) {
      if constexpr (C > 1) Prefetch(next + t * C * tile.next_value_bytes);
      const Vec w = Load(weights + (first + t) * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < C; ++i) acc[i] = Fma(Set(keys[i * kPageTokens + t]), w, acc[i]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < C; ++i) Store(values + i * kLanes, acc[i]);
}

void AttendLatents(const LatentTile& tile, const float* q, float* state) {
  alignas(64) float scores[kTileTokens * kLanes];
  for (int t = tile.first_token / kLatentBlock * kLatentBlock; t < tile.end_token; t += kLatentBlock) {
    LatentScores(tile.pages[t / kPageTokens] + t % kPageTokens, tile.key_dim, q, scores + t * kLanes);
  }
  const Vec shrink = LatentSoftmax(tile, scores, state);
  float* values = state + kLatentHeader;
  int column = 0;
  for (; column + kLatentBlock <= tile.value_dim; column += kLatentBlock) {
    WeighLatents<kLatentBlock>(tile, column, scores, shrink, values + column * kLanes);
  }
  for (; column < tile.value_dim; ++column) WeighLatents<1>(tile, column, scores, shrink, values + column * kLanes);
}

void MergeLatents(const float* state, int value_dim, float* total) {
  const Vec max = Max(Load(state), Load(total));
  const Vec old_scale = Exp(Sub(Load(total), max)), new_scale = Exp(Sub(Load(state), max));
  Store(total, max);
  for (int i = kLanes; i < kLatentHeader + value_dim * kLanes; i += kLanes) {
    Store(total + i, Fma(Load(state + i), new_scale, Mul(Load(total + i), old_scale)));
  }
}

}  // namespace
}  // namespace sluice
