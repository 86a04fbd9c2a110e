// Small floats <-> float: IEEE binary16 (f16), bfloat16 (bf16) and 8-bit E4M3 (OCP OFP8, the "fn" variety: no
// infinities, one NaN per sign, largest value 448). Widening is exact; narrowing rounds to nearest, ties to even. Bit
// arithmetic only, so every machine gives the same bits; subnormals are kept even where the processor flushes them.
// NaNs stay NaNs.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace sluice {

inline float F16ToFloat(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  uint32_t bits;
  if (magnitude >= 0x7c00u) {  // infinity or NaN
    bits = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  } else if (magnitude >= 0x0400u) {
    bits = (magnitude << 13) + (uint32_t(127 - 15) << 23);
  } else {  // subnormal: a whole number of 2^-24
    bits = std::bit_cast<uint32_t>(float(magnitude) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | bits);
}

// Beyond the largest f16 (65504, from 65520 on) the result is infinite.
inline uint16_t FloatToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t h;
  if (magnitude > 0x7f800000u) {
    h = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16
    h = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal f16; a carry out of the mantissa is right
    h = ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - (uint32_t(127 - 15) << 10);
  } else {  // the last bit of a float in [0.5, 1) is worth 2^-24, so the addition rounds for us
    h = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  }
  return uint16_t(sign | h);
}

inline float Bf16ToFloat(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

inline uint16_t FloatToBf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t(bits >> 16 | 0x40u);
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float F8E4M3ToFloat(uint8_t b) {
  const uint32_t sign = uint32_t(b & 0x80u) << 24;
  const uint32_t magnitude = b & 0x7fu;
  uint32_t bits;
  if (magnitude == 0x7fu) {
    bits = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
  } else if (magnitude >= 8u) {
    bits = (magnitude << 20) + (uint32_t(127 - 7) << 23);
  } else {  // subnormal: a whole number of 2^-9
    bits = std::bit_cast<uint32_t>(float(magnitude) * 0x1p-9f);
  }
  return std::bit_cast<float>(sign | bits);
}

// Saturates: whatever lies beyond 448, infinity included, becomes 448.
inline uint8_t FloatToF8E4M3(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t b;
  if (magnitude > 0x7f800000u) {
    b = 0x7fu;
  } else if (magnitude >= 0x43e00000u) {  // 448
    b = 0x7eu;
  } else if (magnitude >= 0x3c800000u) {  // 2^-6, the smallest normal
    b = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (uint32_t(127 - 7) << 3);
  } else {  // the last bit of a float in [2^14, 2^15) is worth 2^-9
    b = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
  }
  return uint8_t(sign | b);
}

}  // namespace sluice
