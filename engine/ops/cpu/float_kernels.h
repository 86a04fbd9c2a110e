// The floating point kernels around the linear layers, one table per instruction set, all with the same bits (NaN
// payloads excepted). Built from one source, float_kernels.cc, over the 16-lane vectors of vec16.h.
//
// Vectors of n values may have any n and need no alignment.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/base/isa.h"
#include "engine/base/layer_types.h"

namespace sluice {

// ---------------------------------------------------------------- attention

inline constexpr int kPageTokens = 16;       // tokens of a page of the KV cache
inline constexpr int kTilePages = 4;         // pages of a tile
inline constexpr int kTileTokens = 64;       // tokens whose softmax is taken at a time
inline constexpr int kMaxAttentionRows = 6;  // query rows of one call

// Up to 64 consecutive keys and values of one KV head. A page is K transposed, [head_dim][16], followed by
// V, [16][value_stride], in the cache's type.
struct AttentionTile {
  const uint8_t* pages[kTilePages];
  const uint8_t* next_pages[kTilePages];  // of the tile to come: prefetched, never read
  // Tokens that any of the rows can see. Pages and values outside are not touched.
  int first_token, end_token;  // 0 <= first_token < end_token <= 64
  int head_dim;
  int value_stride;  // value_head_dim rounded up to 16
  float softcap;     // 0: none
};

// Softmax of one query row over a part of its keys, so far: {max, sum, accumulated values}.
//   state[0] max, state[16..31] sums by key % 16, state[32 + i] = sum over the keys of e^(score - max) * v[i]
inline constexpr int kStateHeader = 32;
inline constexpr float kEmptyMax = -3.402823466e38f;  // of a state that has seen no key; its sums are 0

// Query rows that look at the tile. begin[r]..end[r]: visible keys of row r, counted from the tile's first key,
// 0 <= begin <= 64, 0 <= end <= 64; none if end <= begin.
struct AttentionRows {
  const float* q;  // [head_dim][num_rows], times the softmax scale
  float* states;   // [num_rows][kStateHeader + value_stride]
  const int* begin;
  const int* end;
  int num_rows;  // 1..kMaxAttentionRows
};

// ---------------------------------------------------------------- latent attention

inline constexpr int kLatentLanes = 16;  // heads of one call

// Up to 64 consecutive latent keys, in f32. A page is [key_dim][16 tokens]; the first value_dim dimensions are the
// value.
struct LatentTile {
  const float* pages[kTilePages];
  const uint8_t* next_pages[kTilePages];  // of the tile to come, in the cache's type: prefetched, never read
  int next_value_bytes;
  int first_token, end_token;  // visible; 0 <= first_token < end_token <= 64. What is outside does not count
  int key_dim, value_dim;
};

// Softmax of sixteen heads of one row over a part of the keys, so far, a lane for each head:
//   state[0..15] max, state[16..31] sums, state[32 + 16 d + lane] = sum over the keys of e^(score - max) * key[d]
inline constexpr int kLatentHeader = 32;

// ---------------------------------------------------------------- sampling

struct TokenValue {
  float value;
  int32_t token;
};

struct ScanResult {
  float max;  // of the values that are not NaN; -inf if there are none
  bool bad;   // a NaN or +inf
};

// Logits as the sampler sees them: value i is logits[i] / temperature.
struct TemperedLogits {
  const float* logits;
  int64_t n;
  float temperature;
};

// ---------------------------------------------------------------- the table

struct FloatKernels {
  Isa isa;

  // y = norm(x) by NormParams; weight and bias may be null (1 and 0). y may be x.
  void (*norm)(const NormParams& params, const float* x, int64_t n, const float* weight, const float* bias, float* y);
  // y += x
  void (*add)(const float* x, int64_t n, float* y);
  // x = cap * tanh(x / cap)
  void (*softcap)(float cap, float* x, int64_t n);
  // Rotates x[num_rotary] in place. `table`: see rope_kernels.h.
  void (*rope)(RopeLayout layout, const float* table, int num_rotary, float* x);
  // out = act(gate) * up, for kSwigluOai gate * logistic(alpha * gate) * (up + 1) with both clamped at `limit`; with
  // up == nullptr out = act(gate). out may be gate or up.
  void (*activate)(ActivationKind kind, float alpha, float limit, const float* gate, const float* up, int64_t n,
                   float* out);
  // Keys and values as the cache keeps them in f16: rounded to nearest, ties to even; a finite number beyond the
  // largest f16 (65504) becomes that, with its sign.
  void (*to_cache_f16)(const float* x, int64_t n, uint16_t* out);

  // Adds a tile to the states of a few query rows. Keys in the cache's type: 32-bit, f16, bf16 floats.
  void (*attend_f32)(const AttentionTile& tile, const AttentionRows& rows);
  void (*attend_f16)(const AttentionTile& tile, const AttentionRows& rows);
  void (*attend_bf16)(const AttentionTile& tile, const AttentionRows& rows);
  void (*widen_f16)(const uint16_t* x, int64_t n, float* out);
  void (*widen_bf16)(const uint16_t* x, int64_t n, float* out);
  // Merges `state` into `total`, whose sum is the single value total[16] (an empty total: {kEmptyMax, 0, zeros}).
  void (*merge_states)(const float* state, int value_stride, float* total);
  // out[value_head_dim] = values / sum, with e^(sink - max) added to the sum if sink != nullptr.
  void (*finish_state)(const float* total, const float* sink, int value_head_dim, float* out);

  // Adds a tile to the state of sixteen heads. q: [key_dim][16 heads], times the softmax scale.
  void (*attend_latents)(const LatentTile& tile, const float* q, float* state);
  // Merges `state` into `total` (an empty one: kEmptyMax in all lanes, then zeros).
  void (*merge_latents)(const float* state, int value_dim, float* total);

  ScanResult (*scan)(const float* logits, int64_t n);
  // The first index with this value, or n.
  int64_t (*find)(const float* logits, int64_t n, float value);
  // weights[i] = e^(values[i] - max) in units of 2^-40, rounded down; 0 where that is below one unit. Integers, so that
  // the order of later sums does not matter. REQUIRES: no value above max.
  void (*weigh)(const float* values, int64_t n, float max, uint64_t* weights);
  // The sum of these weights over values >= min_value. REQUIRES: n < 2^22.
  uint64_t (*mass)(const TemperedLogits& x, float max, float min_value);
  // Writes the values >= min_value with first_token + their index, ascending; returns how many. out has room for n.
  int64_t (*gather)(const TemperedLogits& x, float min_value, int32_t first_token, TokenValue* out);
  // Number of logits above `value`.
  int64_t (*count_above)(const float* logits, int64_t n, float value);
  // The largest value + Gumbel noise among values >= min_value, lowest token on ties; token -1 if there are none.
  // `noise(bits)` is called for the few tokens that can still win.
  TokenValue (*gumbel_max)(const TemperedLogits& x, float min_value, int32_t first_token, uint64_t seed,
                           int64_t position, float (*noise)(uint32_t bits));
};

// Lives for ever. REQUIRES: `isa` is among SupportedIsas().
const FloatKernels& GetFloatKernels(Isa isa);

}  // namespace sluice
