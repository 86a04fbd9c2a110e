// Attention of a few query rows over a tile of 64 keys: scores, online softmax, weighted values.
//
// Per query row the operations and their order are fixed: a score is one chain of FMAs over head_dim, the softmax of a
// tile is taken at once, values are added key by key. So a row's bits do not depend on which rows are beside it.
// Register blocks: R rows x T pages of scores, R rows x C vectors of values.
#pragma once

#include "engine/ops/cpu/float_kernels.h"
#include "engine/ops/cpu/vec_math.h"

namespace sluice {
namespace {

#if SLUICE_VEC == 512
constexpr int kRegisterPages = 4, kRegisterColumns = 4;  // 24 accumulators + 4 operands of 32 registers
#else
constexpr int kRegisterPages = 1, kRegisterColumns = 1;  // 12 + 2 of 16
#endif

struct KvF32 {
  using Value = float;
  static Vec Load16(const float* p) { return Load(p); }
};
struct KvF16 {
  using Value = uint16_t;
  static Vec Load16(const uint16_t* p) { return LoadF16(p); }
};
struct KvBf16 {
  using Value = uint16_t;
  static Vec Load16(const uint16_t* p) { return LoadBf16(p); }
};

template <class Kv>
inline const typename Kv::Value* KeysOf(const uint8_t* page) {
  return reinterpret_cast<const typename Kv::Value*>(page);
}
inline int EndPage(const AttentionTile& tile) { return (tile.end_token + kPageTokens - 1) / kPageTokens; }
template <class Kv>
inline const typename Kv::Value* ValuesOf(const AttentionTile& tile, const uint8_t* page) {
  return KeysOf<Kv>(page) + tile.head_dim * kPageTokens;
}

// scores[r][16 * first_page + i] for T pages. Meanwhile fetches their values.
template <class Kv, int R, int T>
void Scores(const AttentionTile& tile, const float* q, int first_page, float* scores) {
  const int head_dim = tile.head_dim;
  const typename Kv::Value* k[T];
  for (int i = 0; i < T; ++i) k[i] = KeysOf<Kv>(tile.pages[first_page + i]);
  const int value_lines =
      tile.prefetch ? static_cast<int>(tile.value_stride * kPageTokens * sizeof(typename Kv::Value) / 64) : 0;
  Vec s[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) s[r][i] = Set(0);
  }
  int d = 0;
  for (int part = 0; part < T; ++part) {  // while part p of the dimensions is read, values of page p are fetched
    const uint8_t* line = reinterpret_cast<const uint8_t*>(ValuesOf<Kv>(tile, tile.pages[first_page + part]));
    const int end = head_dim * (part + 1) / T;
    const int lines = (value_lines + end - d - 1) / (end - d);  // per dimension
    for (; d < end; ++d) {
      for (int i = 0; i < lines; ++i, line += 64) Prefetch(line);
      Vec keys[T];
#pragma GCC unroll 4
      for (int i = 0; i < T; ++i) keys[i] = Kv::Load16(k[i] + d * kPageTokens);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec x = Set(q[r * head_dim + d]);
#pragma GCC unroll 4
        for (int i = 0; i < T; ++i) s[r][i] = Fma(keys[i], x, s[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) Store(scores + r * kTileTokens + (first_page + i) * kPageTokens, s[r][i]);
  }
}

template <class Kv, int R>
void AllScores(const AttentionTile& tile, const float* q, float* scores) {
  int page = tile.first_token / kPageTokens;
  const int end_page = EndPage(tile);
  for (; page + kRegisterPages <= end_page; page += kRegisterPages) {
    Scores<Kv, R, kRegisterPages>(tile, q, page, scores);
  }
  if constexpr (kRegisterPages == 4) {
    switch (end_page - page) {
      case 3:
        return Scores<Kv, R, 3>(tile, q, page, scores);
      case 2:
        return Scores<Kv, R, 2>(tile, q, page, scores);
      case 1:
        return Scores<Kv, R, 1>(tile, q, page, scores);
    }
  }
}

inline int ClampLane(int lane) { return lane < 0 ? 0 : lane > kLanes ? kLanes : lane; }

// Scores of one row become weights in place; maximum and sum of the state move on. Returns the factor by which earlier
// sums shrink.
float SoftmaxRow(const AttentionTile& tile, int begin, int end, float* scores, float* state) {
  const int first_page = tile.first_token / kPageTokens, end_page = EndPage(tile);
  const Vec lowest = Set(kEmptyMax);
  Vec top = lowest, s[kTilePages];
  Mask visible[kTilePages];
  for (int i = first_page; i < end_page; ++i) {
    const int first = i * kPageTokens;
    const int from = ClampLane(begin - first), to = ClampLane(end - first);
    visible[i] = LaneRange(from, to > from ? to : from);
    s[i] = Load(scores + first);
    if (tile.softcap != 0) s[i] = Mul(Set(tile.softcap), Tanh(Div(s[i], Set(tile.softcap))));
    top = Max(top, Select(visible[i], s[i], lowest));
  }
  const float old_max = state[0], tile_max = ReduceMax(top);
  const float new_max = old_max > tile_max ? old_max : tile_max;
  const Vec shrink = Exp(Set(old_max - new_max));
  Vec total = Set(0);
  for (int i = first_page; i < end_page; ++i) {
    const Vec e = Select(visible[i], Exp(Sub(s[i], Set(new_max))), Set(0));
    total = Add(total, e);
    Store(scores + i * kPageTokens, e);
  }
  state[0] = new_max;
  Store(state + 16, Fma(Load(state + 16), shrink, total));
  alignas(64) float lanes[kLanes];
  Store(lanes, shrink);
  return lanes[0];
}

// accumulators[r][column .. column + 16 C) = shrink[r] * accumulators + weights[r] * values
template <class Kv, int R, int C>
void WeighValues(const AttentionTile& tile, int column, const float* weights, const float* shrink, float* accumulators,
                 int state_stride) {
  Vec acc[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) {
      acc[r][i] = Mul(Load(accumulators + r * state_stride + column + i * kLanes), Set(shrink[r]));
    }
  }
  const int key_bytes = static_cast<int>(tile.head_dim * sizeof(typename Kv::Value));  // a page's keys, per token
  for (int page = tile.first_token / kPageTokens; page < EndPage(tile); ++page) {
    const int first = page * kPageTokens;
    const int begin = ClampLane(tile.first_token - first), end = ClampLane(tile.end_token - first);
    const typename Kv::Value* v = ValuesOf<Kv>(tile, tile.pages[page]) + column + begin * tile.value_stride;
    for (int t = begin; t < end; ++t, v += tile.value_stride) {
      if (column == 0 && tile.prefetch) {
        const uint8_t* next = tile.next_pages[page] + t * key_bytes;
        for (int i = 0; i < key_bytes; i += 64) Prefetch(next + i);
      }
      Vec values[C];
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) values[i] = Kv::Load16(v + i * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec w = Set(weights[r * kTileTokens + first + t]);
#pragma GCC unroll 4
        for (int i = 0; i < C; ++i) acc[r][i] = Fma(w, values[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) Store(accumulators + r * state_stride + column + i * kLanes, acc[r][i]);
  }
}

template <class Kv, int R>
void AttendRows(const AttentionTile& tile, const AttentionRows& rows) {
  alignas(64) float scores[R * kTileTokens];
  float shrink[R];
  const int stride = kStateHeader + tile.value_stride;
  AllScores<Kv, R>(tile, rows.q, scores);
  for (int r = 0; r < R; ++r) {
    shrink[r] = SoftmaxRow(tile, rows.begin[r], rows.end[r], scores + r * kTileTokens, rows.states + r * stride);
  }
  float* accumulators = rows.states + kStateHeader;
  int column = 0;
  for (; column + kRegisterColumns * kLanes <= tile.value_stride; column += kRegisterColumns * kLanes) {
    WeighValues<Kv, R, kRegisterColumns>(tile, column, scores, shrink, accumulators, stride);
  }
  for (; column < tile.value_stride; column += kLanes) {
    WeighValues<Kv, R, 1>(tile, column, scores, shrink, accumulators, stride);
  }
}

template <class Kv>
void Attend(const AttentionTile& tile, const AttentionRows& rows) {
  switch (rows.num_rows) {
    case 1:
      return AttendRows<Kv, 1>(tile, rows);
    case 2:
      return AttendRows<Kv, 2>(tile, rows);
    case 3:
      return AttendRows<Kv, 3>(tile, rows);
    case 4:
      return AttendRows<Kv, 4>(tile, rows);
    case 5:
      return AttendRows<Kv, 5>(tile, rows);
    case 6:
      return AttendRows<Kv, 6>(tile, rows);
  }
}

template <class Kv>
void Widen(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) Store(out + i, Kv::Load16(x + i));
}

inline float ExpOf(float x) {
  alignas(64) float lanes[kLanes];
  Store(lanes, Exp(Set(x)));
  return lanes[0];
}

void MergeStates(const float* state, int value_stride, float* total) {
  const float max = total[0] > state[0] ? total[0] : state[0];
  const float old_scale = ExpOf(total[0] - max), new_scale = ExpOf(state[0] - max);
  total[0] = max;
  total[16] = total[16] * old_scale + ReduceAdd(Load(state + 16)) * new_scale;
  for (int i = kStateHeader; i < kStateHeader + value_stride; i += kLanes) {
    Store(total + i, Fma(Load(state + i), Set(new_scale), Mul(Load(total + i), Set(old_scale))));
  }
}

void FinishState(const float* total, const float* sink, int value_head_dim, float* out) {
  float scale = 1, sum = total[16];
  if (sink != nullptr) {
    const float max = total[0] > *sink ? total[0] : *sink;
    scale = ExpOf(total[0] - max);
    sum = sum * scale + ExpOf(*sink - max);
  }
  const Vec factor = Set(scale / sum);
  int i = 0;
  for (; i + kLanes <= value_head_dim; i += kLanes) Store(out + i, Mul(Load(total + kStateHeader + i), factor));
  if (i < value_head_dim) StorePartial(out + i, Mul(Load(total + kStateHeader + i), factor), value_head_dim - i);
}

}  // namespace
}  // namespace sluice
