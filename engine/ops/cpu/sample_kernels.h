// Passes over a row of logits for the sampler.
#pragma once

#include "engine/ops/cpu/float_kernels.h"
#include "engine/ops/cpu/norm_kernels.h"

namespace sluice {
namespace {

// Calls body(index, values, lanes) for 16 values at a time; `lanes` has the bits of those that exist.
template <class Body>
inline void ForTempered(const TemperedLogits& x, Body&& body) {
  const Vec temperature = Set(x.temperature);
  ForLanes(x.n, [&](int64_t i, int c) {
    body(i, Div(LoadN(x.logits + i, c), temperature), c == kLanes ? 0xffffu : (1u << c) - 1);
  });
}

ScanResult Scan(const float* logits, int64_t n) {
  const float infinity = __builtin_inff();
  constexpr int kUnroll = 4;
  Vec top[kUnroll], zero[kUnroll];  // zero stays so as long as all values are finite
  for (int j = 0; j < kUnroll; ++j) top[j] = Set(-infinity), zero[j] = Set(0);
  int64_t i = 0;
  for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < kUnroll; ++j) {
      const Vec x = Load(logits + i + j * kLanes);
      zero[j] = Add(zero[j], Sub(x, x));
      top[j] = Max(x, top[j]);  // top where x is NaN
    }
  }
  bool finite = true, bad = false;
  for (int j = 0; j < kUnroll; ++j) {
    finite &= MaskBits(GreaterEqual(zero[j], Set(0))) == 0xffffu;
    top[0] = Max(top[j], top[0]);
  }
  float max = ReduceMax(top[0]);
  for (int64_t tail = i; tail < n; ++tail) {
    bad |= !(logits[tail] < infinity);
    if (logits[tail] > max) max = logits[tail];
  }
  for (int64_t k = 0; !finite && k < i; k += kLanes)
    bad |= MaskBits(Greater(Set(infinity), Load(logits + k))) != 0xffffu;
  return {max, bad};
}

int64_t Find(const float* logits, int64_t n, float value) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec x = Load(logits + i);
    const uint32_t equal = MaskBits(GreaterEqual(x, Set(value))) & MaskBits(GreaterEqual(Set(value), x));
    if (equal != 0) return i + __builtin_ctz(equal);
  }
  while (i < n && logits[i] != value) ++i;
  return i;
}

// An integer 2^20 * high + low of 0 .. 2^40; the parts are at most 2^20, so that 1024 of them fit the sum of a lane.
struct Weight {
  IntVec high, low;
};

// Integer part of x in [0, 2^22): adding 2^23 leaves the nearest integer in the low bits of the float.
inline IntVec FloorOf(Vec x, Vec* integer) {
  const Vec magic = Set(8388608.0f);
  const Vec nearest = Sub(Add(x, magic), magic);
  *integer = Select(Greater(nearest, x), Sub(nearest, Set(1.0f)), nearest);
  return SubInt(Bits(Add(*integer, magic)), Bits(magic));
}

inline Weight WeightOf(Vec v, float max, Mask keep) {
  const Vec scale = Set(1048576.0f);
  const Vec w = Select(keep, Mul(Exp(Sub(v, Set(max))), scale), Set(0));
  Vec high, low;
  const IntVec high_integer = FloorOf(w, &high);
  return {high_integer, FloorOf(Mul(Sub(w, high), scale), &low)};
}

void Weigh(const float* values, int64_t n, float max, uint64_t* weights) {
  ForTempered({values, n, 1.0f}, [&](int64_t i, Vec v, uint32_t lanes) {
    const Weight w = WeightOf(v, max, MaskOf(lanes));
    int32_t high[kLanes], low[kLanes];
    StoreInt(high, w.high);
    StoreInt(low, w.low);
    for (int j = 0; j < kLanes && i + j < n; ++j) {
      weights[i + j] = (static_cast<uint64_t>(high[j]) << 20) + static_cast<uint64_t>(low[j]);
    }
  });
}

uint64_t Mass(const TemperedLogits& x, float max, float min_value) {
  constexpr int64_t kRun = 1024 * kLanes;
  uint64_t total = 0;
  for (int64_t first = 0; first < x.n; first += kRun) {
    const int64_t left = x.n - first;
    IntVec high_sum = SetInt(0), low_sum = SetInt(0);
    ForTempered({x.logits + first, left < kRun ? left : kRun, x.temperature}, [&](int64_t, Vec v, uint32_t lanes) {
      const Weight w = WeightOf(v, max, MaskOf(lanes & MaskBits(GreaterEqual(v, Set(min_value)))));
      high_sum = AddInt(high_sum, w.high);
      low_sum = AddInt(low_sum, w.low);
    });
    int32_t high[kLanes], low[kLanes];
    StoreInt(high, high_sum);
    StoreInt(low, low_sum);
    for (int i = 0; i < kLanes; ++i) total += (static_cast<uint64_t>(high[i]) << 20) + static_cast<uint64_t>(low[i]);
  }
  return total;
}

int64_t Gather(const TemperedLogits& x, float min_value, int32_t first_token, TokenValue* out) {
  int64_t count = 0;
  ForTempered(x, [&](int64_t i, Vec v, uint32_t lanes) {
    uint32_t found = lanes & MaskBits(GreaterEqual(v, Set(min_value)));
    if (found == 0) return;
    float values[kLanes];
    Store(values, v);
    for (; found != 0; found &= found - 1) {
      const int lane = __builtin_ctz(found);
      out[count++] = {values[lane], first_token + static_cast<int32_t>(i) + lane};
    }
  });
  return count;
}

int64_t CountAbove(const float* logits, int64_t n, float value) {
  int64_t count = 0;
  ForTempered({logits, n, 1.0f}, [&](int64_t, Vec v, uint32_t lanes) {
    count += __builtin_popcount(lanes & MaskBits(Greater(v, Set(value))));
  });
  return count;
}

// ---------------------------------------------------------------- Gumbel noise

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u, kMix1 = 0xBF58476D1CE4E5B9u, kMix2 = 0x94D049BB133111EBu;

// The part of SampleBits (engine/ops/sampling.h) that is common to all tokens.
inline uint64_t MixSeed(uint64_t seed, int64_t position) {
  uint64_t x = seed + kGolden * (static_cast<uint64_t>(position) + 1);
  x = (x ^ (x >> 30)) * kMix1;
  x = (x ^ (x >> 27)) * kMix2;
  return x ^ (x >> 31);
}

// SampleBits of tokens first .. first + 15.
#if SLUICE_VEC == 512
inline __m512i MixEight(__m512i x) {
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)), _mm512_set1_epi64(static_cast<int64_t>(kMix1)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)), _mm512_set1_epi64(static_cast<int64_t>(kMix2)));
  return _mm512_srli_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 31)), 32);
}
inline IntVec TokenBits(uint64_t mixed_seed, int32_t first) {
  const uint64_t base = mixed_seed + kGolden * (static_cast<uint64_t>(static_cast<uint32_t>(first)) + 1);
  const __m512i steps =
      _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(static_cast<int64_t>(kGolden)));
  const __m512i low = _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(base)), steps);
  const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(static_cast<int64_t>(8 * kGolden)));
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(MixEight(low))),
                            _mm512_cvtepi64_epi32(MixEight(high)), 1);
}
#elif SLUICE_VEC == 256
inline __m256i Multiply64(__m256i x, uint64_t factor) {
  const __m256i f = _mm256_set1_epi64x(static_cast<int64_t>(factor));
  const __m256i cross =
      _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), f), _mm256_mul_epu32(x, _mm256_srli_epi64(f, 32)));
  return _mm256_add_epi64(_mm256_mul_epu32(x, f), _mm256_slli_epi64(cross, 32));
}
// The bits are left in the low half of each 64.
inline __m256i MixFour(__m256i x) {
  x = Multiply64(_mm256_xor_si256(x, _mm256_srli_epi64(x, 30)), kMix1);
  x = Multiply64(_mm256_xor_si256(x, _mm256_srli_epi64(x, 27)), kMix2);
  return _mm256_srli_epi64(_mm256_xor_si256(x, _mm256_srli_epi64(x, 31)), 32);
}
inline IntVec TokenBits(uint64_t mixed_seed, int32_t first) {
  uint64_t x = mixed_seed + kGolden * (static_cast<uint64_t>(static_cast<uint32_t>(first)) + 1);
  alignas(64) int32_t bits[kLanes];
  for (int i = 0; i < kLanes; i += 4, x += 4 * kGolden) {
    const __m256i four =
        MixFour(_mm256_setr_epi64x(static_cast<int64_t>(x), static_cast<int64_t>(x + kGolden),
                                   static_cast<int64_t>(x + 2 * kGolden), static_cast<int64_t>(x + 3 * kGolden)));
    const __m256i packed = _mm256_permutevar8x32_epi32(four, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_store_si128(reinterpret_cast<__m128i*>(bits + i), _mm256_castsi256_si128(packed));
  }
  return LoadInt(bits);
}
#else
inline IntVec TokenBits(uint64_t mixed_seed, int32_t first) {
  IntVec bits;
  for (int i = 0; i < kLanes; ++i) {
    uint64_t x = mixed_seed + kGolden * (static_cast<uint64_t>(static_cast<uint32_t>(first + i)) + 1);
    x = (x ^ (x >> 30)) * kMix1;
    x = (x ^ (x >> 27)) * kMix2;
    bits.v[i] = static_cast<int32_t>(static_cast<uint32_t>((x ^ (x >> 31)) >> 32));
  }
  return bits;
}
#endif

// At least the noise of these bits, at most 0.1 more. With u = (bits + 0.5) / 2^32:
//   -log(-log u) <= -log(1 - u) = 32 ln 2 - ln 2 * log2(w), w = ~bits + 0.5,
// and log2(w) >= exponent + mantissa - 1 of w as a float: its bits read as an integer, scaled. Halving ~bits to make it
// a signed integer drops its last bit, which is on the safe side; 1e-3 covers all roundings.
inline Vec GumbelBound(IntVec bits) {
  const IntVec half = ShiftRight<1>(SubInt(SetInt(-1), bits));
  const Vec w = Fma(ToFloat(half), Set(2.0f), Set(0.5f));
  constexpr float kLn2 = 0.69314718f;
  return NegFma(ToFloat(Bits(w)), Set(kLn2 / 8388608.0f), Set((32 + 127) * kLn2 + 1e-3f));
}

TokenValue GumbelMax(const TemperedLogits& x, float min_value, int32_t first_token, uint64_t seed, int64_t position,
                     float (*noise)(uint32_t bits)) {
  const uint64_t mixed_seed = MixSeed(seed, position);
  TokenValue best = {-__builtin_inff(), -1};
  ForTempered(x, [&](int64_t i, Vec v, uint32_t lanes) {
    lanes &= MaskBits(GreaterEqual(v, Set(min_value)));
    if (lanes == 0) return;
    const int32_t first = first_token + static_cast<int32_t>(i);
    const IntVec bits = TokenBits(mixed_seed, first);
    uint32_t possible = lanes & MaskBits(GreaterEqual(Add(v, GumbelBound(bits)), Set(best.value)));
    if (possible == 0) return;
    float values[kLanes];
    int32_t random[kLanes];
    Store(values, v);
    StoreInt(random, bits);
    for (; possible != 0; possible &= possible - 1) {
      const int lane = __builtin_ctz(possible);
      const float noisy = values[lane] + noise(static_cast<uint32_t>(random[lane]));
      if (noisy > best.value) best = {noisy, first + lane};
    }
  });
  return best;
}

}  // namespace
}  // namespace sluice
