// Vectors of 256 bits under the names that kernels are written in (see simd_avx512.h for the other width). Include only
// in files that are compiled for AVX2, FMA and F16C, with AVX-VNNI where the processor has it; everything has internal
// linkage, so that no other file can end up with this file's instructions.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace sluice {
namespace {

using Int = __m256i;   // 8 x 32 bits or 32 x 8 bits
using Float = __m256;  // 8 floats
constexpr int kLanes = 8;

// Largest register tiles: two vectors x R rows x (digits + 1) accumulators, two weights and some temporaries in 16
// registers.
template <int Digits>
constexpr int kMaxIntegerRows = Digits == 2 ? 2 : 3;
constexpr int kMaxFloatRows = 4;

inline Int Load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline Int Set8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
inline Int Set32(int v) { return _mm256_set1_epi32(v); }
inline Int And(Int a, Int b) { return _mm256_and_si256(a, b); }
inline Int Or(Int a, Int b) { return _mm256_or_si256(a, b); }
inline Int Sub32(Int a, Int b) { return _mm256_sub_epi32(a, b); }
template <int Bits>
inline Int ShiftRight16(Int x) {
  return _mm256_srli_epi16(x, Bits);
}
template <int Bits>
inline Int ShiftLeft16(Int x) {
  return _mm256_slli_epi16(x, Bits);
}
inline Int ShiftRight32(Int x, int bits) { return _mm256_srli_epi32(x, bits); }
// 128 * high + low
inline Int JoinDigits(Int high, Int low) { return _mm256_add_epi32(_mm256_slli_epi32(high, 7), low); }

inline Float Set(float v) { return _mm256_set1_ps(v); }
inline Float LoadFloat(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
inline Float LoadF16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Float LoadBf16(const uint8_t* p) {
  const Int wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline Float LoadU8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Float LoadS8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Float ToFloat(Int x) { return _mm256_cvtepi32_ps(x); }
inline Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
inline Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
inline Float Negate(Float a) { return _mm256_xor_ps(a, Set(-0.0f)); }
inline Float Fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
inline void Store(float* p, Float x) { _mm256_storeu_ps(p, x); }

// Byte by byte table[index], index < 16.
inline Int LookUp(const uint8_t (&table)[16], Int indices) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(half), indices);
}

// Adds 16 to the bytes whose bit in the mask at `p` (kLanes * 4 bits) is set. Every byte gets the mask byte that has
// its bit, then looks at that bit. The bytes are below 16.
inline Int AddFifthBits(Int x, const uint8_t* p) {
  int mask;
  __builtin_memcpy(&mask, p, sizeof(mask));
  const Int source = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const Int bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const Int on = _mm256_cmpeq_epi8(And(_mm256_shuffle_epi8(Set32(mask), source), bit), bit);
  return Or(x, And(on, Set8(16)));
}

// Each 32 bits of sum += dot of four u8 codes of at most Bits bits with four s8.
#if defined(__AVXVNNI__)
constexpr bool kSignedCodes8 = false;
template <int Bits>
inline Int Dot4(Int sum, Int codes, Int x) {
  return _mm256_dpbusd_avx_epi32(sum, codes, x);
}
#else
// Without VNNI pairs of products are summed in 16 bits: up to 63 * 127 * 2 fits, 255 * 127 * 2 does not. So codes of 8
// bits are taken as signed, code - 128 (kSignedCodes8), as |w| * sign(x, w): at most 128 * 127 * 2 = 32,512.
constexpr bool kSignedCodes8 = true;
template <int Bits>
inline Int Dot4(Int sum, Int codes, Int x) {
  Int pairs;
  if constexpr (Bits < 8) {
    pairs = _mm256_maddubs_epi16(codes, x);
  } else {
    const Int w = _mm256_xor_si256(codes, Set8(-128));
    pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  }
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

// For quantising: 32 integers.
struct Block32 {
  Int v[4];
};
inline uint32_t LargestMagnitude(const float* x) {
  Int largest = Set32(0);
  for (int i = 0; i < 4; ++i) {
    const Int bits = And(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), Set32(0x7fffffff));
    largest = _mm256_max_epi32(largest, bits);
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}
// round(x * inverse), ties to even
inline Block32 Round(const float* x, float inverse) {
  Block32 q;
  for (int i = 0; i < 4; ++i) q.v[i] = _mm256_cvtps_epi32(Mul(_mm256_loadu_ps(x + 8 * i), Set(inverse)));
  return q;
}
inline int SumOf(Int x) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}
inline int SumLow(const Block32& q) { return SumOf(_mm256_add_epi32(q.v[0], q.v[1])); }
inline int Sum(const Block32& q) {
  return SumOf(_mm256_add_epi32(_mm256_add_epi32(q.v[0], q.v[1]), _mm256_add_epi32(q.v[2], q.v[3])));
}
// (q + 64) >> 7, the high digit
inline Block32 HighDigit(const Block32& q) {
  Block32 high;
  for (int i = 0; i < 4; ++i) high.v[i] = _mm256_srai_epi32(_mm256_add_epi32(q.v[i], Set32(64)), 7);
  return high;
}
inline Block32 LowDigit(const Block32& q, const Block32& high) {
  Block32 low;
  for (int i = 0; i < 4; ++i) low.v[i] = Sub32(q.v[i], _mm256_slli_epi32(high.v[i], 7));
  return low;
}
inline void StoreBytes(int8_t* p, const Block32& q) {
  const Int a = _mm256_packs_epi32(q.v[0], q.v[1]), b = _mm256_packs_epi32(q.v[2], q.v[3]);
  // Packing works within 128-bit halves: put the groups of four bytes back in order.
  const Int order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
}

}  // namespace
}  // namespace sluice
