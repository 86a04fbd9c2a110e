#include "engine/base/dequantize.h"

#include <bit>
#include <cstring>

#include "engine/base/by_tensor_type.h"
#include "engine/base/check.h"
#include "engine/base/float16.h"
#include "engine/base/tensor_format.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian and are read in place");

uint16_t LoadU16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

uint32_t LoadU32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

float LoadF16(const uint8_t* p) { return F16ToFloat(LoadU16(p)); }

// A stored block -> its values. A type that is a weight has one.
template <TensorType type>
void DecodeBlock(const uint8_t* b, float* out) = delete;

template <>
void DecodeBlock<TensorType::kF32>(const uint8_t* b, float* out) {
  std::memcpy(out, b, sizeof(float));
}
template <>
void DecodeBlock<TensorType::kF16>(const uint8_t* b, float* out) {
  *out = LoadF16(b);
}
template <>
void DecodeBlock<TensorType::kBF16>(const uint8_t* b, float* out) {
  *out = Bf16ToFloat(LoadU16(b));
}
template <>
void DecodeBlock<TensorType::kF8E4M3>(const uint8_t* b, float* out) {
  *out = F8E4M3ToFloat(*b);
}

// Blocks of 32: byte j of the nibbles holds element j (low half) and element j + 16 (high half).

// d, nibbles[16]
template <>
void DecodeBlock<TensorType::kQ4_0>(const uint8_t* b, float* out) {
  const float d = LoadF16(b);
  for (int j = 0; j < 16; ++j) {
    out[j] = float((b[2 + j] & 15) - 8) * d;
    out[j + 16] = float((b[2 + j] >> 4) - 8) * d;
  }
}

// d, m, nibbles[16]
template <>
void DecodeBlock<TensorType::kQ4_1>(const uint8_t* b, float* out) {
  const float d = LoadF16(b), m = LoadF16(b + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = float(b[4 + j] & 15) * d + m;
    out[j + 16] = float(b[4 + j] >> 4) * d + m;
  }
}

// d, fifth bits (bit j: element j), nibbles[16]
template <>
void DecodeBlock<TensorType::kQ5_0>(const uint8_t* b, float* out) {
  const float d = LoadF16(b);
  const uint32_t high = LoadU32(b + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = float(int((b[6 + j] & 15) | (high >> j & 1) << 4) - 16) * d;
    out[j + 16] = float(int((b[6 + j] >> 4) | (high >> (j + 16) & 1) << 4) - 16) * d;
  }
}

// d, m, fifth bits, nibbles[16]
template <>
void DecodeBlock<TensorType::kQ5_1>(const uint8_t* b, float* out) {
  const float d = LoadF16(b), m = LoadF16(b + 2);
  const uint32_t high = LoadU32(b + 4);
  for (int j = 0; j < 16; ++j) {
    out[j] = float((b[8 + j] & 15) | (high >> j & 1) << 4) * d + m;
    out[j + 16] = float((b[8 + j] >> 4) | (high >> (j + 16) & 1) << 4) * d + m;
  }
}

// d, int8[32]
template <>
void DecodeBlock<TensorType::kQ8_0>(const uint8_t* b, float* out) {
  const float d = LoadF16(b);
  for (int j = 0; j < 32; ++j) out[j] = float(int8_t(b[2 + j])) * d;
}

// exponent, nibbles[16]. 2^(e-128) is a subnormal for e < 2; the byte 255 (NaN in OCP MX) is an ordinary scale to GGUF.
template <>
void DecodeBlock<TensorType::kMXFP4>(const uint8_t* b, float* out) {
  static constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float d = std::bit_cast<float>(b[0] < 2 ? 0x00200000u << b[0] : uint32_t(b[0] - 1) << 23);
  for (int j = 0; j < 16; ++j) {
    out[j] = float(kTwice[b[1 + j] & 15]) * d;
    out[j + 16] = float(kTwice[b[1 + j] >> 4]) * d;
  }
}

// Super-blocks of 256.

// scales[16] (low nibble: scale, high: min), 2-bit q[64], d, dmin. Half of 128: 32 bytes hold four planes of 32
// elements.
template <>
void DecodeBlock<TensorType::kQ2_K>(const uint8_t* b, float* out) {
  const uint8_t* scales = b;
  const float d = LoadF16(b + 80), dmin = LoadF16(b + 82);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* q = b + 16 + 32 * half;
    for (int sub = 0; sub < 8; ++sub) {  // 16 elements: plane sub / 2, bytes 16 (sub % 2)...
      const uint8_t s = scales[8 * half + sub];
      const float scale = d * float(s & 15), min = dmin * float(s >> 4);
      for (int l = 0; l < 16; ++l) *out++ = scale * float(q[16 * (sub & 1) + l] >> (2 * (sub >> 1)) & 3) - min;
    }
  }
}

// high[32], 2-bit q[64] as in Q2_K, 6-bit scales[12], d. Bit (4 half + plane) of high[l] clear means minus 4.
template <>
void DecodeBlock<TensorType::kQ3_K>(const uint8_t* b, float* out) {
  const uint8_t* high = b;
  const uint8_t* scales = b + 96;
  const float d = LoadF16(b + 108);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* q = b + 32 + 32 * half;
    for (int sub = 0; sub < 8; ++sub) {
      const int j = 8 * half + sub, plane = sub >> 1;
      const int low4 = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
      const int high2 = scales[8 + (j & 3)] >> (2 * (j >> 2)) & 3;
      const float scale = d * float((low4 | high2 << 4) - 32);
      for (int l = 16 * (sub & 1); l < 16 * (sub & 1) + 16; ++l) {
        const int offset = high[l] >> (4 * half + plane) & 1 ? 0 : 4;
        *out++ = scale * float((q[l] >> (2 * plane) & 3) - offset);
      }
    }
  }
}

// The 6-bit scale and min of sub-block j of Q4_K and Q5_K: eight of each in 12 bytes.
struct ScaleMin {
  uint8_t scale, min;
};
ScaleMin UnpackScaleMin(const uint8_t* s, int j) {
  if (j < 4) return {uint8_t(s[j] & 63), uint8_t(s[j + 4] & 63)};
  return {uint8_t((s[j + 4] & 15) | (s[j - 4] >> 6) << 4), uint8_t((s[j + 4] >> 4) | (s[j] >> 6) << 4)};
}

// d, dmin, scales[12], nibbles[128]: per 32 bytes, first 32 low halves (sub-block 2g), then 32 high halves (2g + 1).
template <>
void DecodeBlock<TensorType::kQ4_K>(const uint8_t* b, float* out) {
  const float d = LoadF16(b), dmin = LoadF16(b + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleMin s = UnpackScaleMin(b + 4, sub);
    const float scale = d * float(s.scale), min = dmin * float(s.min);
    const uint8_t* q = b + 16 + 32 * (sub >> 1);
    for (int l = 0; l < 32; ++l) *out++ = scale * float(q[l] >> (4 * (sub & 1)) & 15) - min;
  }
}

// d, dmin, scales[12], high[32] (bit sub of high[l]: fifth bit), nibbles[128] as in Q4_K.
template <>
void DecodeBlock<TensorType::kQ5_K>(const uint8_t* b, float* out) {
  const float d = LoadF16(b), dmin = LoadF16(b + 2);
  const uint8_t* high = b + 16;
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleMin s = UnpackScaleMin(b + 4, sub);
    const float scale = d * float(s.scale), min = dmin * float(s.min);
    const uint8_t* q = b + 48 + 32 * (sub >> 1);
    for (int l = 0; l < 32; ++l) {
      *out++ = scale * float((q[l] >> (4 * (sub & 1)) & 15) + 16 * (high[l] >> sub & 1)) - min;
    }
  }
}

// low[128], high[64], int8 scales[16], d. Half of 128: plane t has the low (t < 2) or high nibbles of low[32 (t %
// 2)...] and bits 2t, 2t + 1 of high.
template <>
void DecodeBlock<TensorType::kQ6_K>(const uint8_t* b, float* out) {
  const float d = LoadF16(b + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* high = b + 128 + 32 * half;
    for (int t = 0; t < 4; ++t) {
      const uint8_t* low = b + 64 * half + 32 * (t & 1);
      for (int l = 0; l < 32; ++l) {
        const float scale = d * float(int8_t(b[192 + 8 * half + 2 * t + l / 16]));
        const int q = (low[l] >> (4 * (t >> 1)) & 15) | (high[l] >> (2 * t) & 3) << 4;
        *out++ = scale * float(q - 32);
      }
    }
  }
}

using RowDecoder = void (*)(const uint8_t* src, int64_t blocks, float* out);

template <TensorType type>
void DecodeBlocks(const uint8_t* src, int64_t blocks, float* out) {
  constexpr TensorTypeInfo kInfo = FormatOf(type).stored;
  for (int64_t i = 0; i < blocks; ++i) DecodeBlock<type>(src + i * kInfo.block_bytes, out + i * kInfo.block_elems);
}

constexpr auto kRowDecoders = MakeByTensorType<RowDecoder>([]<TensorType type>() -> RowDecoder {
  if constexpr (FormatOf(type).is_weight) return DecodeBlocks<type>;
  return nullptr;
});

}  // namespace

bool CanDequantize(TensorType type) { return FormatOf(type).is_weight; }

void DequantizeRow(TensorType type, const uint8_t* src, int64_t elems, float* out) {
  const TensorTypeInfo& info = GetTensorTypeInfo(type);
  SLUICE_CHECK(CanDequantize(type) && elems >= 0 && elems % info.block_elems == 0);
  kRowDecoders[type](src, elems / info.block_elems, out);
}

}  // namespace sluice
