// The packed forms of weights and the blocks of quantised activations: what kernels read. Plain data only, because this
// header is compiled for several instruction sets.
//
// A panel is 32 output rows ("lanes"). Inside it follow the k, ascending, so that a thread reads one stream. All parts
// are multiples of 64 bytes.
//
// Block-quantised types: one block of 32 k after the other, each
//   codes    unsigned integers q. A 64-byte group holds 16 lanes x 4 k, which is one operand of a u8 x s8 dot product;
//            the groups of lanes 0-15 and 16-31 lie side by side.
//              8 bits: 8 pairs of groups, pair g: k = 4g .. 4g+3
//              4 bits: 4 pairs of groups; byte t of a lane in pair j: low nibble k = 4j+t, high nibble k = 16+4j+t
//              5 bits: as 4 bits, then the fifth bits: for each of the 8 groups (pair j, lanes half h), as 64-bit masks
//                      over the group's bytes, one for the low and one for the high nibbles
//              6 bits: as 4 bits, then the upper two bits in 4 groups of 64 bytes: (low nibbles, lanes 0-15),
//                      (low, 16-31), (high, 0-15), (high, 16-31); bits 2j, 2j+1 of a byte
//                      belong to pair j
//              MXFP4: nibbles as in 4 bits; nibble n means code kMxfp4Codes[n], which is 12 + twice the 4-bit float
//   scales   one-level types: f16 scale[32], then, affine types, f16 offset[32]
//            MXFP4: bf16 scale[32], the block's power of two, halved: bf16 holds all of 2^-128 .. 2^127
//            two-level types (K-quants): u8 scale[32] and u8 min[32]; Q6_K: s8 scale[2][32], one per 16 k
// Two-level types have before each 8 blocks (256 k): f16 d[32] and, affine types, f16 dmin[32].
//   one-level:  w = scale * (q - zero)         or  scale * q + offset
//   two-level:  w = (d * scale) * (q - zero)   or  (d * scale) * q - dmin * min
//
// Plain floats: for each k the 32 lanes side by side.
//
// Which of these a type has follows from its row in engine/base/tensor_format.h. Bytes against the GGUF: Q4_0 .. Q8_0,
// Q6_K and floats equal; Q4_K 148 for 144, Q5_K 180 for 176 (6-bit scales are kept as bytes), MXFP4 18 for 17. Types
// without a form of their own are widened to one that holds them exactly: Q3_K as Q6_K (210 for 110), F8_E4M3 as BF16
// (2 for 1), Q2_K as F32 (1,024 for 84).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/tensor_format.h"

namespace sluice {

inline constexpr int kPanelRows = 32;
inline constexpr int kBlock = 32;        // k per block
inline constexpr int kSuperBlock = 256;  // k per super-block of two-level types

// Panels of one type; plain floats have only float_bytes.
struct PackedFormat {
  int code_bits;  // 4, 5, 6, 8; 0 for plain floats
  int zero;       // symmetric types
  bool affine;
  bool two_level;
  int scales_per_block;  // 1, or 2: one per 16 k
  int code_bytes;        // per block
  int block_bytes;       // codes and scales
  int super_bytes;       // before each 8 blocks
  int float_bytes;       // plain floats: bytes of a value
  bool fp4;              // codes by kMxfp4Codes, scales in bf16

  constexpr bool quantized() const { return code_bits != 0; }
};

// REQUIRES: HasCpuForm(type).
constexpr PackedFormat PackedFormatOf(TensorType type) {
  const TensorFormat& row = FormatOf(type);
  const BlockCodes& codes = row.codes;
  PackedFormat format = {};
  if (codes.bits == 0) {
    format.float_bytes = row.stored.block_bytes;
    return format;
  }
  constexpr int kScales = kPanelRows * 2;  // bytes: a 16-bit float a lane, or two bytes
  const int both = codes.affine ? 2 : 1;   // scales, and offsets
  format.code_bits = codes.bits;
  format.zero = codes.zero;
  format.affine = codes.affine;
  format.two_level = codes.two_level;
  format.scales_per_block = kBlock / codes.scale_length;
  format.code_bytes = kPanelRows * kBlock * codes.bits / 8;
  format.block_bytes = format.code_bytes + kScales * (codes.two_level ? 1 : both);
  format.super_bytes = codes.two_level ? kScales * both : 0;
  format.fp4 = codes.fp4;
  return format;
}

inline constexpr uint8_t kMxfp4Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// How kernels take activations. Integers only go with block-quantised weights.
enum class ActivationType : uint8_t {
  kInt8,   // blocks with one digit
  kInt16,  // blocks with two digits: 15 bits
  kF32,    // plain floats
};
inline constexpr int kNumActivationTypes = 3;

// 32 activations x ~ scale * q, with q = digits[0] or 128 * digits[0] + digits[1], |q| <= kActivationRange<Digits>.
// The dot product of a block of weights w = s * (c - zero) + m is then s * scale * (c.q - zero * sum(q)) + m * scale *
// sum(q): the sums are made once, here.
template <int Digits>
struct ActivationBlock {
  float scale;
  float scaled_sum;               // scale * sum(q), rounded once
  int32_t neg_sum;                // -sum(q)
  int32_t neg_sum_low;            // -sum of the first 16 q
  int8_t digits[Digits][kBlock];  // one digit: -127..127. Two: -127..127 and -64..63
};

template <int Digits>
inline constexpr int kActivationRange = Digits == 2 ? 127 * 128 : 127;

}  // namespace sluice
