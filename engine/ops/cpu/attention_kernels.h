// Attention of a few query rows over a tile of 64 keys: scores, online softmax, weighted values.
//
// Per query row the operations and their order are fixed: a score is one chain of FMAs over head_dim, the softmax of a
// tile is taken at once, values are added key by key. So a row's bits do not depend on which rows are beside it.
// Register blocks: R rows x T pages of scores, R rows x C vectors of values.
//
//   a page: 16 tokens of a KV head            a tile: 4 pages            the state of a query row
//     dim 0   | k of t0 | k of t1 | .. t15 |    tokens  0 .. 15            [0]        m: the largest score so far
//     dim 1   | k       | k       | ..     |           16 .. 31            [16 .. 31] l: sums of e^(s - m), by key % 16
//     ..                                               32 .. 47            [32 ..]    o: sums of e^(s - m) v
//     token 0 | v0 | v1 | v2 | ..          |           48 .. 63
//     token 1 | v0 | v1 | v2 | ..          |
//   One load of keys is one dimension of 16 keys, which meets one broadcast q; one load of values is 16 dimensions of
//   one key, which meets one broadcast weight.
//
// Worked example: head_dim 2, q = (1, 1), a first tile with one visible key, a second with two.
//
//   key       value   s = q.k     first tile: m = 0, weight e^0 = 1, l = 1, o = (2, 0)
//   (0, 0)    (2, 0)  0           second:     m = ln 2, shrink = e^(0 - ln 2) = 0.5
//   (ln 2, 0) (4, 0)  ln 2                    weights e^0 = 1 and e^(-ln 2) = 0.5; l = 0.5 * 1 + 1.5 = 2
//   (0, 0)    (0, 6)  0                       o = 0.5 (2, 0) + 1 (4, 0) + 0.5 (0, 6) = (5, 3)
//   FinishState: o / l = (2.5, 1.5) = (1 (2, 0) + 2 (4, 0) + 1 (0, 6)) / (1 + 2 + 1), the softmax taken at once. With a
//   sink of 0: m stays, l + e^(0 - ln 2) = 2.5, o / l = (2, 1.2).
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

// How the cache stores a value. Wide tiles are in cache already; 16-bit ones stream from memory.
struct KvF32 {
  using Value = float;
  static constexpr bool kPrefetch = false;
  static Vec Load16(const float* p) { return Load(p); }
};
struct KvF16 {
  using Value = uint16_t;
  static constexpr bool kPrefetch = true;
  static Vec Load16(const uint16_t* p) { return LoadF16(p); }
};
struct KvBf16 {
  using Value = uint16_t;
  static constexpr bool kPrefetch = true;
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

// scores[r][16 * first_page + i] for T pages. Meanwhile fetches their values, two cache lines per dimension.
template <class Kv, int R, int T>
void Scores(const AttentionTile& tile, const float* q, int first_page, float* scores) {
  const int head_dim = tile.head_dim;
  const typename Kv::Value* k[T];
  for (int i = 0; i < T; ++i) k[i] = KeysOf<Kv>(tile.pages[first_page + i]);
  Vec s[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) s[r][i] = Set(0);
  }
  for (int part = 0; part < T; ++part) {
    const int begin = head_dim * part / T, end = head_dim * (part + 1) / T;
    const uint8_t* line = reinterpret_cast<const uint8_t*>(ValuesOf<Kv>(tile, tile.pages[first_page + part]));
    for (int d = begin; d < end; ++d, line += 128) {
      if constexpr (Kv::kPrefetch) {
        Prefetch(line);
        Prefetch(line + 64);
      }
      Vec keys[T];
#pragma GCC unroll 4
      for (int i = 0; i < T; ++i) keys[i] = Kv::Load16(k[i] + d * kPageTokens);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec x = Set(q[d * R + r]);
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

// Bits [begin, end) of 0..63.
inline uint64_t BitRange(int begin, int end) {
  const uint64_t below_end = end >= kTileTokens ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
  return begin >= kTileTokens ? 0 : below_end >> begin << begin;
}
inline Mask VisibleOf(uint64_t visible, int page) { return MaskOf((visible >> (page * kPageTokens)) & 0xffffu); }

void CapScores(const AttentionTile& tile, int num_rows, float* scores) {
  const Vec cap = Set(tile.softcap);
  for (int r = 0; r < num_rows; ++r) {
    for (int page = tile.first_token / kPageTokens; page < EndPage(tile); ++page) {
      float* s = scores + r * kTileTokens + page * kPageTokens;
      Store(s, Mul(cap, Tanh(Div(Load(s), cap))));
    }
  }
}

// Scores become weights in place; maximum and sum of the states move on. shrink[r]: the factor by which what row r has
// summed up so far shrinks. First all maxima, then all weights: neither waits for the other's reductions. kAllVisible:
// every row sees the whole tile.
template <int R, bool kAllVisible>
void Softmax(const AttentionTile& tile, const AttentionRows& rows, float* scores, float* shrink) {
  const int first_page = kAllVisible ? 0 : tile.first_token / kPageTokens;
  const int end_page = kAllVisible ? kTilePages : EndPage(tile);
  const int stride = kStateHeader + tile.value_stride;
  const Vec lowest = Set(kEmptyMax);
  float max[R], change[kLanes] = {};
  uint64_t visible[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    visible[r] = BitRange(rows.begin[r], rows.end[r]);
    Vec top = lowest;
    for (int page = first_page; page < end_page; ++page) {
      const Vec s = Load(scores + r * kTileTokens + page * kPageTokens);
      top = Max(top, kAllVisible ? s : Select(VisibleOf(visible[r], page), s, lowest));
    }
    const float old_max = rows.states[r * stride], tile_max = ReduceMax(top);
    max[r] = old_max > tile_max ? old_max : tile_max;
    change[r] = old_max - max[r];
    rows.states[r * stride] = max[r];
  }
  Store(shrink, ExpUpTo88(Load(change)));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Vec total = Set(0);
    for (int page = first_page; page < end_page; ++page) {
      float* s = scores + r * kTileTokens + page * kPageTokens;
      Vec e = ExpUpTo88(Sub(Load(s), Set(max[r])));
      if (!kAllVisible) e = Select(VisibleOf(visible[r], page), e, Set(0));
      total = Add(total, e);
      Store(s, e);
    }
    float* sums = rows.states + r * stride + 16;
    Store(sums, Fma(Load(sums), Set(shrink[r]), total));
  }
}

// accumulators[r][column .. column + 16 C) = shrink[r] * accumulators + weights[r] * values. Meanwhile fetches the keys
// of the next tile, two cache lines per token and 64 columns.
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
  const int64_t key_bytes = static_cast<int64_t>(tile.head_dim * sizeof(typename Kv::Value));  // of a token
  for (int page = tile.first_token / kPageTokens; page < EndPage(tile); ++page) {
    const int first = page * kPageTokens;
    const int begin = ClampLane(tile.first_token - first), end = ClampLane(tile.end_token - first);
    const typename Kv::Value* v = ValuesOf<Kv>(tile, tile.pages[page]) + column + begin * tile.value_stride;
    for (int t = begin; t < end; ++t, v += tile.value_stride) {
      if constexpr (Kv::kPrefetch && C > 1) {
        const uint8_t* next = tile.next_pages[page] + t * key_bytes + 2 * column;
        Prefetch(next);
        Prefetch(next + 64);
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
  alignas(64) float scores[R * kTileTokens], shrink[kLanes];
  const int stride = kStateHeader + tile.value_stride;
  AllScores<Kv, R>(tile, rows.q, scores);
  if (tile.softcap != 0) CapScores(tile, R, scores);
  bool all_visible = true;
  for (int r = 0; r < R; ++r) all_visible &= rows.begin[r] <= 0 && rows.end[r] >= kTileTokens;
  if (all_visible) {
    Softmax<R, true>(tile, rows, scores, shrink);
  } else {
    Softmax<R, false>(tile, rows, scores, shrink);
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
