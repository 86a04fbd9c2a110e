// Sixteen floats as one value: one zmm register, two ymm registers or a plain array, chosen by the macro SLUICE_VEC
// (512, 256 or 0). Code written with it is compiled once per instruction set and gives the same bits on each: every
// operation is IEEE 754 with one rounding, and reductions are trees of fixed shape.
//
// Everything here has internal linkage, and files that include it must not include inline library code: the linker
// could keep the copy that needs AVX-512 for the whole program.
#pragma once

#include <stdint.h>

#ifndef SLUICE_VEC
#error "SLUICE_VEC must be 512, 256 or 0"
#endif
#if SLUICE_VEC != 0
#include <immintrin.h>
#else
#include <math.h>
#include <string.h>

#include "engine/base/float16.h"
#endif

namespace sluice {
namespace {

constexpr int kLanes = 16;

#if SLUICE_VEC == 512

using Vec = __m512;      // 16 floats
using IntVec = __m512i;  // 16 int32
using Mask = __mmask16;

inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
inline Vec Set(float x) { return _mm512_set1_ps(x); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec NegFma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }

inline IntVec Bits(Vec x) { return _mm512_castps_si512(x); }
inline Vec FromBits(IntVec x) { return _mm512_castsi512_ps(x); }
inline IntVec SetInt(int32_t x) { return _mm512_set1_epi32(x); }
inline IntVec LoadInt(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void StoreInt(int32_t* p, IntVec x) { _mm512_storeu_si512(p, x); }
inline IntVec AddInt(IntVec a, IntVec b) { return _mm512_add_epi32(a, b); }
inline IntVec SubInt(IntVec a, IntVec b) { return _mm512_sub_epi32(a, b); }
inline IntVec And(IntVec a, IntVec b) { return _mm512_and_si512(a, b); }
inline IntVec Or(IntVec a, IntVec b) { return _mm512_or_si512(a, b); }
template <int N>
inline IntVec ShiftLeft(IntVec x) {
  return _mm512_slli_epi32(x, N);
}
template <int N>
inline IntVec ShiftRight(IntVec x) {
  return _mm512_srli_epi32(x, N);
}
inline Vec ToFloat(IntVec x) { return _mm512_cvtepi32_ps(x); }

inline Mask GreaterEqual(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline Mask Greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
// Lanes of the bits set in `bits`.
inline Mask MaskOf(uint32_t bits) { return static_cast<Mask>(bits); }
inline uint32_t MaskBits(Mask m) { return m; }
inline Vec Select(Mask m, Vec yes, Vec no) { return _mm512_mask_mov_ps(no, m, yes); }

inline Vec LoadF16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec LoadBf16(const uint16_t* p) {
  const IntVec wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return FromBits(_mm512_slli_epi32(wide, 16));
}
inline void StoreF16(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Lanes 2i and 2i+1 change places.
inline Vec SwapPairs(Vec x) { return _mm512_permute_ps(x, 0xB1); }

inline __m256 LowHalf(Vec x) { return _mm512_castps512_ps256(x); }
inline __m256 HighHalf(Vec x) { return _mm512_extractf32x8_ps(x, 1); }

#elif SLUICE_VEC == 256

struct Vec {
  __m256 lo, hi;
};
struct IntVec {
  __m256i lo, hi;
};
struct Mask {
  __m256 lo, hi;  // lanes of all ones or all zeros
};

inline Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec Div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
inline Vec NegFma(Vec a, Vec b, Vec c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

inline IntVec Bits(Vec x) { return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)}; }
inline Vec FromBits(IntVec x) { return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)}; }
inline IntVec SetInt(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline IntVec LoadInt(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline void StoreInt(int32_t* p, IntVec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.hi);
}
inline IntVec AddInt(IntVec a, IntVec b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline IntVec SubInt(IntVec a, IntVec b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline IntVec And(IntVec a, IntVec b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline IntVec Or(IntVec a, IntVec b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int N>
inline IntVec ShiftLeft(IntVec x) {
  return {_mm256_slli_epi32(x.lo, N), _mm256_slli_epi32(x.hi, N)};
}
template <int N>
inline IntVec ShiftRight(IntVec x) {
  return {_mm256_srli_epi32(x.lo, N), _mm256_srli_epi32(x.hi, N)};
}
inline Vec ToFloat(IntVec x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }

inline Mask GreaterEqual(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)};
}
inline Mask Greater(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
inline Mask MaskOf(uint32_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const auto half = [&](uint32_t b) {
    const __m256i on = _mm256_and_si256(_mm256_set1_epi32(static_cast<int32_t>(b)), lane);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(on, lane));
  };
  return {half(bits & 255), half(bits >> 8 & 255)};
}
inline uint32_t MaskBits(Mask m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(m.hi)) << 8;
}
inline Vec Select(Mask m, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

inline Vec LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Vec LoadBf16(const uint16_t* p) {
  const auto half = [](const uint16_t* h) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  };
  return {half(p), half(p + 8)};
}
inline void StoreF16(uint16_t* p, Vec x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.lo, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.hi, kNearest));
}
inline Vec SwapPairs(Vec x) { return {_mm256_permute_ps(x.lo, 0xB1), _mm256_permute_ps(x.hi, 0xB1)}; }

inline __m256 LowHalf(Vec x) { return x.lo; }
inline __m256 HighHalf(Vec x) { return x.hi; }

#else  // the definition of the bits

struct Vec {
  float v[kLanes];
};
struct IntVec {
  int32_t v[kLanes];
};
struct Mask {
  uint32_t bits;
};

#define SLUICE_LANES(Type, expression)                  \
  Type y;                                               \
  for (int i = 0; i < kLanes; ++i) y.v[i] = expression; \
  return y

inline Vec Load(const float* p) { SLUICE_LANES(Vec, p[i]); }
inline void Store(float* p, Vec x) { memcpy(p, x.v, sizeof x.v); }
inline Vec Set(float x) { SLUICE_LANES(Vec, x); }
inline Vec Add(Vec a, Vec b) { SLUICE_LANES(Vec, a.v[i] + b.v[i]); }
inline Vec Sub(Vec a, Vec b) { SLUICE_LANES(Vec, a.v[i] - b.v[i]); }
inline Vec Mul(Vec a, Vec b) { SLUICE_LANES(Vec, a.v[i] * b.v[i]); }
inline Vec Div(Vec a, Vec b) { SLUICE_LANES(Vec, a.v[i] / b.v[i]); }
inline Vec Fma(Vec a, Vec b, Vec c) { SLUICE_LANES(Vec, fmaf(a.v[i], b.v[i], c.v[i])); }
inline Vec NegFma(Vec a, Vec b, Vec c) { SLUICE_LANES(Vec, fmaf(-a.v[i], b.v[i], c.v[i])); }
inline Vec Max(Vec a, Vec b) { SLUICE_LANES(Vec, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }  // b where one is NaN
inline Vec Min(Vec a, Vec b) { SLUICE_LANES(Vec, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }  // b where one is NaN

inline IntVec Bits(Vec x) {
  IntVec y;
  memcpy(y.v, x.v, sizeof y.v);
  return y;
}
inline Vec FromBits(IntVec x) {
  Vec y;
  memcpy(y.v, x.v, sizeof y.v);
  return y;
}
inline int32_t Wrap(uint32_t x) { return static_cast<int32_t>(x); }
inline uint32_t Unsigned(int32_t x) { return static_cast<uint32_t>(x); }
inline IntVec SetInt(int32_t x) { SLUICE_LANES(IntVec, x); }
inline IntVec LoadInt(const int32_t* p) { SLUICE_LANES(IntVec, p[i]); }
inline void StoreInt(int32_t* p, IntVec x) { memcpy(p, x.v, sizeof x.v); }
inline IntVec AddInt(IntVec a, IntVec b) { SLUICE_LANES(IntVec, Wrap(Unsigned(a.v[i]) + Unsigned(b.v[i]))); }
inline IntVec SubInt(IntVec a, IntVec b) { SLUICE_LANES(IntVec, Wrap(Unsigned(a.v[i]) - Unsigned(b.v[i]))); }
inline IntVec And(IntVec a, IntVec b) { SLUICE_LANES(IntVec, a.v[i] & b.v[i]); }
inline IntVec Or(IntVec a, IntVec b) { SLUICE_LANES(IntVec, a.v[i] | b.v[i]); }
template <int N>
inline IntVec ShiftLeft(IntVec x) {
  SLUICE_LANES(IntVec, Wrap(Unsigned(x.v[i]) << N));
}
template <int N>
inline IntVec ShiftRight(IntVec x) {
  SLUICE_LANES(IntVec, Wrap(Unsigned(x.v[i]) >> N));
}
inline Vec ToFloat(IntVec x) { SLUICE_LANES(Vec, static_cast<float>(x.v[i])); }

inline Mask GreaterEqual(Vec a, Vec b) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(a.v[i] >= b.v[i]) << i;
  return {bits};
}
inline Mask Greater(Vec a, Vec b) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(a.v[i] > b.v[i]) << i;
  return {bits};
}
inline Mask MaskOf(uint32_t bits) { return {bits & 0xffffu}; }
inline uint32_t MaskBits(Mask m) { return m.bits; }
inline Vec Select(Mask m, Vec yes, Vec no) { SLUICE_LANES(Vec, (m.bits >> i & 1u) ? yes.v[i] : no.v[i]); }

inline Vec LoadF16(const uint16_t* p) { SLUICE_LANES(Vec, F16ToFloat(p[i])); }
inline Vec LoadBf16(const uint16_t* p) { SLUICE_LANES(Vec, Bf16ToFloat(p[i])); }
inline void StoreF16(uint16_t* p, Vec x) {
  for (int i = 0; i < kLanes; ++i) p[i] = FloatToF16(x.v[i]);
}
inline Vec SwapPairs(Vec x) { SLUICE_LANES(Vec, x.v[i ^ 1]); }
#undef SLUICE_LANES

#endif

// Lane i takes part with lane i + 8, then i + 4, i + 2, i + 1.
#if SLUICE_VEC != 0
inline float ReduceAdd(Vec x) {
  const __m256 eight = _mm256_add_ps(LowHalf(x), HighHalf(x));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
inline float ReduceMax(Vec x) {
  const __m256 eight = _mm256_max_ps(LowHalf(x), HighHalf(x));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}
inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
#else
inline float ReduceAdd(Vec x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] + x.v[i + half];
  }
  return x.v[0];
}
inline float ReduceMax(Vec x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
  }
  return x.v[0];
}
inline void Prefetch(const void*) {}
#endif

// The first n < 16 lanes, zeros after.
inline Vec LoadPartial(const float* p, int64_t n) {
  alignas(64) float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline void StorePartial(float* p, Vec x, int64_t n) {
  alignas(64) float lanes[kLanes];
  Store(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
// Lanes [begin, end), both within 0..16.
inline Mask LaneRange(int begin, int end) { return MaskOf(((1u << end) - 1) & ~((1u << begin) - 1)); }

}  // namespace
}  // namespace sluice
