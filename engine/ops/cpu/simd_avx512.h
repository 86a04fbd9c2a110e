// Vectors of 512 bits under the names that kernels are written in (see simd_avx2.h for the other width). Include only
// in files that are compiled for AVX-512 F, BW, VL, DQ and VNNI; everything has internal linkage, so that no other file
// can end up with this file's instructions.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace sluice {
namespace {

using Int = __m512i;   // 16 x 32 bits or 64 x 8 bits
using Float = __m512;  // 16 floats
constexpr int kLanes = 16;

// Largest register tiles: two vectors x R rows x (digits + 1) accumulators, two weights and some temporaries in 32
// registers.
template <int Digits>
constexpr int kMaxIntegerRows = Digits == 2 ? 4 : 6;
constexpr int kMaxFloatRows = 8;

inline Int Load(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Int Set8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
inline Int Set32(int v) { return _mm512_set1_epi32(v); }
inline Int And(Int a, Int b) { return _mm512_and_si512(a, b); }
inline Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
inline Int Sub32(Int a, Int b) { return _mm512_sub_epi32(a, b); }
template <int Bits>
inline Int ShiftRight16(Int x) {
  return _mm512_srli_epi16(x, Bits);
}
template <int Bits>
inline Int ShiftLeft16(Int x) {
  return _mm512_slli_epi16(x, Bits);
}
inline Int ShiftRight32(Int x, int bits) { return _mm512_srli_epi32(x, bits); }
// 128 * high + low
inline Int JoinDigits(Int high, Int low) { return _mm512_add_epi32(_mm512_slli_epi32(high, 7), low); }

inline Float Set(float v) { return _mm512_set1_ps(v); }
inline Float LoadFloat(const uint8_t* p) { return _mm512_loadu_ps(reinterpret_cast<const float*>(p)); }
inline Float LoadF16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Float LoadBf16(const uint8_t* p) {
  const Int wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline Float LoadU8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Float LoadS8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Float ToFloat(Int x) { return _mm512_cvtepi32_ps(x); }
inline Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
inline Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
inline Float Negate(Float a) { return _mm512_xor_ps(a, Set(-0.0f)); }
inline Float Fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
inline void Store(float* p, Float x) { _mm512_storeu_ps(p, x); }

// Byte by byte table[index], index < 16.
inline Int LookUp(const uint8_t (&table)[16], Int indices) {
  const __m128i quarter = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(quarter), indices);
}

// Adds 16 to the bytes whose bit in the mask at `p` (kLanes * 4 bits) is set.
inline Int AddFifthBits(Int x, const uint8_t* p) {
  __mmask64 bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return _mm512_mask_add_epi8(x, bits, x, Set8(16));
}

// Each 32 bits of sum += dot of four u8 codes of at most Bits bits with four s8. See kSignedCodes.
constexpr bool kSignedCodes8 = false;
template <int Bits>
inline Int Dot4(Int sum, Int codes, Int x) {
  return _mm512_dpbusd_epi32(sum, codes, x);
}

// For quantising: 32 floats as two vectors; see kernels_simd.h.
struct Block32 {
  Int v[2];
};
inline uint32_t LargestMagnitude(const float* x) {
  const Int mask = Set32(0x7fffffff);
  const Int a = And(_mm512_castps_si512(_mm512_loadu_ps(x)), mask);
  const Int b = And(_mm512_castps_si512(_mm512_loadu_ps(x + 16)), mask);
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)));
}
// round(x * inverse), ties to even
inline Block32 Round(const float* x, float inverse) {
  const Float f = Set(inverse);
  return {{_mm512_cvtps_epi32(Mul(_mm512_loadu_ps(x), f)), _mm512_cvtps_epi32(Mul(_mm512_loadu_ps(x + 16), f))}};
}
inline int SumLow(const Block32& q) { return _mm512_reduce_add_epi32(q.v[0]); }
inline int Sum(const Block32& q) { return _mm512_reduce_add_epi32(_mm512_add_epi32(q.v[0], q.v[1])); }
// (q + 64) >> 7, the high digit
inline Block32 HighDigit(const Block32& q) {
  const Int half = Set32(64);
  return {{_mm512_srai_epi32(_mm512_add_epi32(q.v[0], half), 7), _mm512_srai_epi32(_mm512_add_epi32(q.v[1], half), 7)}};
}
inline Block32 LowDigit(const Block32& q, const Block32& high) {
  return {{Sub32(q.v[0], _mm512_slli_epi32(high.v[0], 7)), Sub32(q.v[1], _mm512_slli_epi32(high.v[1], 7))}};
}
inline void StoreBytes(int8_t* p, const Block32& q) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(q.v[0]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm512_cvtepi32_epi8(q.v[1]));
}

}  // namespace
}  // namespace sluice
