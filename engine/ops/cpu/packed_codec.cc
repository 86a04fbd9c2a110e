#include "engine/ops/cpu/packed_codec.h"

#include <bit>
#include <cstring>
#include <vector>

#include "engine/base/by_tensor_type.h"
#include "engine/base/dequantize.h"
#include "engine/base/float16.h"

namespace sluice {
namespace {

constexpr int kBlocksPerSuper = kSuperBlock / kBlock;
constexpr uint32_t kLowNibbles = 0x0f0f0f0f, kTwoBits = 0x03030303, kOneBit = 0x01010101;

template <class T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
void Store(uint8_t* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

// Four bytes of a lane in group `pair` of 16 lanes.
int CodeOffset(int pair, int lane) { return pair * 128 + lane / 16 * 64 + lane % 16 * 4; }
// The mask of fifth bits that holds the lane, and where its four bits start in it.
int FifthMaskOffset(int pair, int lane, int high) { return 512 + (pair * 2 + lane / 16) * 16 + high * 8; }
int FifthShift(int lane) { return lane % 16 * 4; }
// Four bytes of a lane in the plane of upper two bits.
int UpperOffset(int lane, int high) { return 512 + (high * 2 + lane / 16) * 64 + lane % 16 * 4; }

int64_t BlockOffset(const PackedFormat& format, int64_t block) {
  const int64_t supers = format.two_level ? block / kBlocksPerSuper + 1 : 0;
  return block * format.block_bytes + supers * format.super_bytes;
}
int64_t SuperOffset(const PackedFormat& format, int64_t block) {
  return block / kBlocksPerSuper * (kBlocksPerSuper * format.block_bytes + format.super_bytes);
}

// Four nibbles of k = 4 pair .. and of k = 16 + 4 pair ..
void PutNibbles(uint32_t low, uint32_t high, int pair, int lane, uint8_t* block) {
  Store<uint32_t>(block + CodeOffset(pair, lane), low | high << 4);
}

// Bit k of `bits`: fifth bit of code k.
void PutFifthBits(uint32_t bits, int lane, uint8_t* block) {
  for (int high = 0; high < 2; ++high) {
    for (int pair = 0; pair < 4; ++pair) {
      uint8_t* mask = block + FifthMaskOffset(pair, lane, high);
      const uint64_t four = bits >> (high * 16 + pair * 4) & 15;
      Store(mask, Load<uint64_t>(mask) | four << FifthShift(lane));
    }
  }
}

// Bit 8j of `bytes` becomes bit j.
uint32_t GatherBits(uint32_t bytes) { return (bytes & kOneBit) * 0x01020408u >> 24 & 15; }

// A stored block (of a two-level type: its 8 blocks of 32, behind their d and dmin) -> lane `lane` of `block` in the
// form of the type's on_cpu. This is for one-level types: d, [m], [fifth bits], codes. The low and high nibbles already
// sit as we want them.
template <TensorType type>
void PackBlock(const uint8_t* src, int lane, uint8_t* block) {
  constexpr PackedFormat kFormat = PackedFormatOf(type);
  static_assert(!kFormat.two_level && !kFormat.fp4 && kFormat.code_bits != 6, "the type needs a PackBlock of its own");
  uint8_t* scales = block + kFormat.code_bytes;
  std::memcpy(scales + lane * 2, src, 2);
  src += 2;
  if constexpr (kFormat.affine) {
    std::memcpy(scales + 64 + lane * 2, src, 2);
    src += 2;
  }
  if constexpr (kFormat.code_bits == 8) {  // q = w + 128
    for (int g = 0; g < 8; ++g) Store(block + CodeOffset(g, lane), Load<uint32_t>(src + g * 4) ^ 0x80808080u);
    return;
  }
  if constexpr (kFormat.code_bits == 5) {
    PutFifthBits(Load<uint32_t>(src), lane, block);
    src += 4;
  }
  for (int pair = 0; pair < 4; ++pair) std::memcpy(block + CodeOffset(pair, lane), src + pair * 4, 4);
}

// e, codes. The scale is 2^(e - 128), half of the block's factor.
template <>
void PackBlock<TensorType::kMXFP4>(const uint8_t* src, int lane, uint8_t* block) {
  const uint32_t scale = src[0] < 2 ? 0x00200000u << src[0] : static_cast<uint32_t>(src[0] - 1) << 23;
  Store(block + PackedFormatOf(TensorType::kMXFP4).code_bytes + lane * 2, static_cast<uint16_t>(scale >> 16));
  for (int pair = 0; pair < 4; ++pair) std::memcpy(block + CodeOffset(pair, lane), src + 1 + pair * 4, 4);
}

template <TensorType type>
void PackQ4KOrQ5K(const uint8_t* src, int lane, uint8_t* super) {
  constexpr PackedFormat format = PackedFormatOf(type);
  std::memcpy(super + lane * 2, src, 2);
  std::memcpy(super + 64 + lane * 2, src + 2, 2);
  const uint8_t* s = src + 4;
  const uint8_t* fifth = src + 16;
  const uint8_t* codes = src + (format.code_bits == 5 ? 48 : 16);
  for (int sub = 0; sub < kBlocksPerSuper; ++sub) {
    uint8_t* block = super + format.super_bytes + sub * format.block_bytes;
    uint8_t* scales = block + format.code_bytes;
    scales[lane] = sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4;
    scales[32 + lane] = sub < 4 ? s[sub + 4] & 63 : (s[sub + 4] >> 4) | (s[sub] >> 6) << 4;
    // 32 bytes hold the 32 codes of sub-blocks 2g (low nibbles) and 2g + 1.
    const uint8_t* q = codes + sub / 2 * 32;
    const int shift = sub % 2 * 4;
    for (int pair = 0; pair < 4; ++pair) {
      PutNibbles(Load<uint32_t>(q + pair * 4) >> shift & kLowNibbles,
                 Load<uint32_t>(q + 16 + pair * 4) >> shift & kLowNibbles, pair, lane, block);
    }
    if (format.code_bits == 5) {
      uint32_t bits = 0;
      for (int i = 0; i < 8; ++i) bits |= GatherBits(Load<uint32_t>(fifth + i * 4) >> sub) << (4 * i);
      PutFifthBits(bits, lane, block);
    }
  }
}
template <>
void PackBlock<TensorType::kQ4_K>(const uint8_t* src, int lane, uint8_t* super) {
  PackQ4KOrQ5K<TensorType::kQ4_K>(src, lane, super);
}
template <>
void PackBlock<TensorType::kQ5_K>(const uint8_t* src, int lane, uint8_t* super) {
  PackQ4KOrQ5K<TensorType::kQ5_K>(src, lane, super);
}

// `low` and `upper` hold the lower four and upper two bits of the 32 codes of one block, one per byte.
void PutSixBits(const uint8_t* low, const uint8_t* upper, int lane, uint8_t* block) {
  uint32_t planes[2] = {0, 0};
  for (int pair = 0; pair < 4; ++pair) {
    PutNibbles(Load<uint32_t>(low + pair * 4), Load<uint32_t>(low + 16 + pair * 4), pair, lane, block);
    for (int high = 0; high < 2; ++high) {
      planes[high] |= Load<uint32_t>(upper + high * 16 + pair * 4) << (2 * pair);
    }
  }
  for (int high = 0; high < 2; ++high) Store(block + UpperOffset(lane, high), planes[high]);
}

constexpr PackedFormat kSixBits = PackedFormatOf(TensorType::kQ6_K);

void PutSixBitScales(const int8_t* two, int lane, uint8_t* block) {
  uint8_t* scales = block + kSixBits.code_bytes;
  for (int half = 0; half < 2; ++half) scales[half * 32 + lane] = static_cast<uint8_t>(two[half]);
}

template <>
void PackBlock<TensorType::kQ6_K>(const uint8_t* src, int lane, uint8_t* super) {
  std::memcpy(super + lane * 2, src + 208, 2);
  for (int sub = 0; sub < kBlocksPerSuper; ++sub) {
    uint8_t* block = super + kSixBits.super_bytes + sub * kSixBits.block_bytes;
    const int half = sub / 4, plane = sub % 4;
    const uint8_t* q = src + 64 * half + 32 * (plane % 2);
    const uint8_t* high = src + 128 + 32 * half;
    uint8_t low[kBlock], upper[kBlock];
    for (int i = 0; i < kBlock; i += 4) {
      Store(low + i, Load<uint32_t>(q + i) >> (4 * (plane / 2)) & kLowNibbles);
      Store(upper + i, Load<uint32_t>(high + i) >> (2 * plane) & kTwoBits);
    }
    PutSixBits(low, upper, lane, block);
    const int8_t scales[2] = {static_cast<int8_t>(src[192 + 2 * sub]), static_cast<int8_t>(src[193 + 2 * sub])};
    PutSixBitScales(scales, lane, block);
  }
}

// Q3_K in the form of Q6_K: w = (d (s - 32)) (q - 4), so the code is q - 4 + 32.
template <>
void PackBlock<TensorType::kQ3_K>(const uint8_t* src, int lane, uint8_t* super) {
  std::memcpy(super + lane * 2, src + 108, 2);
  const uint8_t* s = src + 96;
  for (int sub = 0; sub < kBlocksPerSuper; ++sub) {
    uint8_t* block = super + kSixBits.super_bytes + sub * kSixBits.block_bytes;
    const int half = sub / 4, plane = sub % 4;
    const uint8_t* q = src + 32 + 32 * half;
    uint8_t low[kBlock], upper[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      const int code = (q[i] >> (2 * plane) & 3) + 28 + (src[i] >> sub & 1) * 4;
      low[i] = code & 15;
      upper[i] = static_cast<uint8_t>(code >> 4);
    }
    PutSixBits(low, upper, lane, block);
    int8_t scales[2];
    for (int i = 0; i < 2; ++i) {
      const int j = 2 * sub + i;
      const int low4 = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
      scales[i] = static_cast<int8_t>((low4 | (s[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32);
    }
    PutSixBitScales(scales, lane, block);
  }
}

// By way of f32; exact for every type that PackedTypeFor sends here.
void PackWidened(TensorType type, const uint8_t* row, int64_t k, TensorType packed, int lane, uint8_t* panel) {
  std::vector<float> values(k);
  DequantizeRow(type, row, k, values.data());
  for (int64_t i = 0; i < k; ++i) {
    if (packed == TensorType::kF32) {
      Store(panel + (i * kPanelRows + lane) * 4, values[i]);
    } else {
      Store(panel + (i * kPanelRows + lane) * 2, static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16));
    }
  }
}

template <int bytes>
void PackFloats(const uint8_t* row, int64_t k, int lane, uint8_t* panel) {
  for (int64_t i = 0; i < k; ++i) std::memcpy(panel + (i * kPanelRows + lane) * bytes, row + i * bytes, bytes);
}

using RowPacker = void (*)(const uint8_t* row, int64_t k, int lane, uint8_t* panel);

// One stored row as a lane in the form of the type's on_cpu.
template <TensorType type>
void PackRow(const uint8_t* row, int64_t k, int lane, uint8_t* panel) {
  constexpr TensorFormat kStored = FormatOf(type);
  constexpr PackedFormat kFormat = PackedFormatOf(kStored.on_cpu);
  if constexpr (kFormat.quantized()) {
    constexpr int64_t kBytes =
        kFormat.two_level ? kFormat.super_bytes + kBlocksPerSuper * kFormat.block_bytes : kFormat.block_bytes;
    static_assert(kStored.stored.block_elems == (kFormat.two_level ? kSuperBlock : kBlock));
    for (int64_t b = 0; b < k / kStored.stored.block_elems; ++b)
      PackBlock<type>(row + b * kStored.stored.block_bytes, lane, panel + b * kBytes);
  } else if constexpr (kStored.on_cpu == type) {
    PackFloats<kFormat.float_bytes>(row, k, lane, panel);
  } else {
    PackWidened(type, row, k, kStored.on_cpu, lane, panel);
  }
}

constexpr auto kRowPackers = MakeByTensorType<RowPacker>([]<TensorType type>() -> RowPacker {
  if constexpr (FormatOf(type).is_weight) return PackRow<type>;
  return nullptr;
});

constexpr auto kPackedFormats = MakeByTensorType<PackedFormat>([]<TensorType type>() -> PackedFormat {
  if constexpr (HasCpuForm(type)) return PackedFormatOf(type);
  return {};
});

int ReadCode(const PackedFormat& format, const uint8_t* block, int lane, int k) {
  if (format.code_bits == 8) return block[CodeOffset(k / 4, lane) + k % 4];
  const int pair = k % 16 / 4, high = k / 16;
  const int nibble = block[CodeOffset(pair, lane) + k % 4] >> (high * 4) & 15;
  if (format.code_bits == 5) {
    const uint64_t mask = Load<uint64_t>(block + FifthMaskOffset(pair, lane, high));
    return nibble | static_cast<int>(mask >> (FifthShift(lane) + k % 4) & 1) << 4;
  }
  if (format.code_bits == 6) return nibble | (block[UpperOffset(lane, high) + k % 4] >> (2 * pair) & 3) << 4;
  return format.fp4 ? kMxfp4Codes[nibble] : nibble;
}

}  // namespace

const PackedFormat& GetPackedFormat(TensorType type) { return kPackedFormats[type]; }

std::optional<TensorType> PackedTypeFor(TensorType type) {
  if (!FormatOf(type).is_weight) return std::nullopt;
  return FormatOf(type).on_cpu;
}

int64_t PanelBytes(TensorType type, int64_t k) {
  const PackedFormat& format = GetPackedFormat(type);
  if (!format.quantized()) return k * kPanelRows * format.float_bytes;
  return k / kBlock * format.block_bytes + (format.two_level ? k / kSuperBlock * format.super_bytes : 0);
}

void PackLane(TensorType type, const uint8_t* row, int64_t k, TensorType packed, int lane, uint8_t* panel) {
  if (packed == FormatOf(type).on_cpu) return kRowPackers[type](row, k, lane, panel);
  PackWidened(type, row, k, packed, lane, panel);
}

LaneBlock ReadLaneBlock(TensorType packed, const uint8_t* panel, int64_t index, int lane) {
  const PackedFormat& format = GetPackedFormat(packed);
  const uint8_t* block = panel + BlockOffset(format, index);
  const uint8_t* scales = block + format.code_bytes;
  LaneBlock out;
  for (int k = 0; k < kBlock; ++k) out.code[k] = ReadCode(format, block, lane, k);
  out.offset = 0;
  if (!format.two_level) {
    const uint16_t scale = Load<uint16_t>(scales + lane * 2);
    out.scale[0] = out.scale[1] = format.fp4 ? Bf16ToFloat(scale) : F16ToFloat(scale);
    if (format.affine) out.offset = F16ToFloat(Load<uint16_t>(scales + 64 + lane * 2));
    return out;
  }
  const uint8_t* super = panel + SuperOffset(format, index);
  const float d = F16ToFloat(Load<uint16_t>(super + lane * 2));
  if (format.affine) {
    const float dmin = F16ToFloat(Load<uint16_t>(super + 64 + lane * 2));
    out.scale[0] = out.scale[1] = d * static_cast<float>(scales[lane]);
    out.offset = -(dmin * static_cast<float>(scales[32 + lane]));
  } else {
    for (int half = 0; half < 2; ++half) {
      out.scale[half] = d * static_cast<float>(static_cast<int8_t>(scales[half * 32 + lane]));
    }
  }
  return out;
}

float ReadLaneFloat(TensorType packed, const uint8_t* panel, int64_t k, int lane) {
  const int64_t index = k * kPanelRows + lane;
  switch (packed) {
    case TensorType::kF16:
      return F16ToFloat(Load<uint16_t>(panel + index * 2));
    case TensorType::kBF16:
      return Bf16ToFloat(Load<uint16_t>(panel + index * 2));
    default:
      return Load<float>(panel + index * 4);
  }
}

void UnpackLane(TensorType packed, const uint8_t* panel, int64_t k, int lane, float* out) {
  const PackedFormat& format = GetPackedFormat(packed);
  if (!format.quantized()) {
    for (int64_t i = 0; i < k; ++i) out[i] = ReadLaneFloat(packed, panel, i, lane);
    return;
  }
  for (int64_t b = 0; b < k / kBlock; ++b) {
    const LaneBlock block = ReadLaneBlock(packed, panel, b, lane);
    for (int i = 0; i < kBlock; ++i) out[b * kBlock + i] = LaneBlockValue(format, block, i);
  }
}

}  // namespace sluice
