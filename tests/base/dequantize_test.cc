#include "engine/base/dequantize.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/base/tensor_format.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

// An independent formulation: the value of one element by bit positions in its block, in double. Every product of the
// formulas fits a float exactly (11 bits of f16 by at most 13), so rounding the whole once is what the float operations
// must give.
class Block {
 public:
  explicit Block(const uint8_t* bytes) : bytes_(bytes) {}

  int Bits(int first, int count) const {
    int value = 0;
    for (int i = 0; i < count; ++i) value |= (bytes_[(first + i) / 8] >> ((first + i) % 8) & 1) << i;
    return value;
  }
  int Byte(int at) const { return Bits(8 * at, 8); }
  int SignedByte(int at) const { return Byte(at) < 128 ? Byte(at) : Byte(at) - 256; }
  double F16(int at) const {
    const int fraction = Bits(8 * at, 10), exponent = Bits(8 * at + 10, 5), sign = Bits(8 * at + 15, 1) ? -1 : 1;
    return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
  }

  // Nibble i of 16 bytes of low halves, then high halves.
  int Nibble32(int at, int i) const { return Bits(8 * (at + i % 16) + 4 * (i / 16), 4); }
  // Bits of element i of a super-block whose bytes, 32 at a time, hold planes of 32 elements.
  int Plane(int at, int i, int bits) const {
    const int elements = 32 * 8 / bits;  // in 32 bytes
    return Bits(8 * (at + 32 * (i / elements) + i % 32) + bits * (i % elements / 32), bits);
  }
  int KScale(int at, int sub) const {
    return sub < 4 ? Bits(8 * (at + sub), 6) : Bits(8 * (at + 4 + sub), 4) + 16 * Bits(8 * (at + sub - 4) + 6, 2);
  }
  int KMin(int at, int sub) const {
    return sub < 4 ? Bits(8 * (at + 4 + sub), 6) : Bits(8 * (at + 4 + sub) + 4, 4) + 16 * Bits(8 * (at + sub) + 6, 2);
  }

 private:
  const uint8_t* bytes_;
};

double ElementValue(TensorType type, const Block& b, int i) {
  switch (type) {
    case TensorType::kQ4_0:
      return (b.Nibble32(2, i) - 8) * b.F16(0);
    case TensorType::kQ4_1:
      return b.Nibble32(4, i) * b.F16(0) + b.F16(2);
    case TensorType::kQ5_0:
      return (b.Nibble32(6, i) + 16 * b.Bits(16 + i, 1) - 16) * b.F16(0);
    case TensorType::kQ5_1:
      return (b.Nibble32(8, i) + 16 * b.Bits(32 + i, 1)) * b.F16(0) + b.F16(2);
    case TensorType::kQ8_0:
      return b.SignedByte(2 + i) * b.F16(0);
    case TensorType::kQ2_K:
      return b.F16(80) * b.Bits(8 * (i / 16), 4) * b.Plane(16, i, 2) - b.F16(82) * b.Bits(8 * (i / 16) + 4, 4);
    case TensorType::kQ3_K: {
      const int j = i / 16;
      const int scale = b.Bits(8 * (96 + j % 8) + 4 * (j / 8), 4) + 16 * b.Bits(8 * (104 + j % 4) + 2 * (j / 4), 2);
      return b.F16(108) * (scale - 32) * (b.Plane(32, i, 2) - 4 * (1 - b.Plane(0, i, 1)));
    }
    case TensorType::kQ4_K:
      return b.F16(0) * b.KScale(4, i / 32) * b.Plane(16, i, 4) - b.F16(2) * b.KMin(4, i / 32);
    case TensorType::kQ5_K:
      return b.F16(0) * b.KScale(4, i / 32) * (b.Plane(48, i, 4) + 16 * b.Plane(16, i, 1)) -
             b.F16(2) * b.KMin(4, i / 32);
    case TensorType::kQ6_K: {
      const int half = i / 128, r = i % 128;
      const int low = b.Bits(8 * (64 * half + r % 64) + 4 * (r / 64), 4);
      return b.F16(208) * b.SignedByte(192 + i / 16) * (low + 16 * b.Plane(128, i, 2) - 32);
    }
    case TensorType::kMXFP4: {
      const int code = b.Nibble32(1, i), exponent = code / 2 % 4, fraction = code % 2;
      const double magnitude = exponent == 0 ? fraction * 0.5 : std::ldexp(1 + fraction * 0.5, exponent - 1);
      return std::ldexp(code < 8 || magnitude == 0 ? magnitude : -magnitude, b.Byte(0) - 127);
    }
    default:
      ADD_FAILURE() << "no formula for " << TensorTypeName(type);
      return 0;
  }
}

struct QuantType {
  TensorType type;
  uint32_t gguf_id;
  std::vector<int> scales;  // offsets of the f16 numbers in a block
};
std::vector<QuantType> QuantTypes() {
  std::vector<QuantType> types;
  for (const TensorFormat& row : kTensorFormats) {
    if (!row.stored.quantized) continue;
    types.push_back({row.type, uint32_t(row.gguf_id), {}});
    for (const int at : {row.codes.scale_at, row.codes.offset_at}) {
      if (at >= 0) types.back().scales.push_back(at);
    }
  }
  return types;
}

TEST(Dequantize, EveryElementOfRandomBlocksHasTheValueItsBitsSay) {
  std::mt19937 random(7);
  for (const QuantType& q : QuantTypes()) {
    const TensorTypeInfo& info = GetTensorTypeInfo(q.type);
    const int blocks = 2048 / info.block_elems * 16;
    // One byte off, so that nothing is aligned.
    std::vector<uint8_t> storage(1 + blocks * info.block_bytes);
    uint8_t* bytes = storage.data() + 1;
    for (uint8_t& byte : storage) byte = uint8_t(random());
    for (int n = 0; n < blocks; ++n) {
      for (int at : q.scales) {  // no infinities or NaNs
        uint8_t& top = bytes[n * info.block_bytes + at + 1];
        if ((top & 0x7c) == 0x7c) top &= ~0x40;
      }
    }
    std::vector<float> values(blocks * info.block_elems);
    DequantizeRow(q.type, bytes, int64_t(values.size()), values.data());
    for (int64_t i = 0; i < int64_t(values.size()); ++i) {
      const Block block(bytes + i / info.block_elems * info.block_bytes);
      const float expected = float(ElementValue(q.type, block, int(i % info.block_elems)));
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i] + 0.0f), std::bit_cast<uint32_t>(expected + 0.0f))
          << info.name << " element " << i << ": " << values[i] << ", expected " << expected;
    }
  }
}

// dequant.bin comes from GGUF's own Python reader (make_dequant.py).
TEST(Dequantize, AgreesBitForBitWithTheReferenceReader) {
  std::ifstream file(SLUICE_SOURCE_DIR "/tests/goldens/dequant.bin", std::ios::binary);
  const std::vector<char> golden((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(golden.empty());
  std::map<uint32_t, TensorType> types = {{1, TensorType::kF16}, {30, TensorType::kBF16}};
  for (const QuantType& q : QuantTypes()) types[q.gguf_id] = q.type;
  size_t types_seen = 0;
  for (size_t at = 0; at < golden.size(); ++types_seen) {
    uint32_t id, elements;
    ASSERT_LE(at + 8, golden.size());
    std::memcpy(&id, &golden[at], 4);
    std::memcpy(&elements, &golden[at + 4], 4);
    at += 8;
    ASSERT_TRUE(types.contains(id)) << id;
    const int64_t block_bytes = TensorBytes(types[id], elements);
    ASSERT_LE(at + block_bytes + 4 * elements, golden.size());
    std::vector<float> values(elements), expected(elements);
    DequantizeRow(types[id], reinterpret_cast<const uint8_t*>(&golden[at]), elements, values.data());
    std::memcpy(expected.data(), &golden[at + block_bytes], 4 * elements);
    for (uint32_t i = 0; i < elements; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i]))
          << TensorTypeName(types[id]) << " element " << i << ": " << values[i] << ", expected " << expected[i];
    }
    at += block_bytes + 4 * elements;
  }
  EXPECT_EQ(types_seen, types.size());
}

TEST(Dequantize, PlainFloatsAreWidenedOrCopied) {
  const float f32[] = {1.5f, -0.0f, 1e-40f};
  float out[3];
  DequantizeRow(TensorType::kF32, reinterpret_cast<const uint8_t*>(f32), 3, out);
  EXPECT_EQ(std::memcmp(out, f32, sizeof(f32)), 0);
  const uint16_t f16[] = {0x3c00, 0x8001, 0x7bff};
  DequantizeRow(TensorType::kF16, reinterpret_cast<const uint8_t*>(f16), 3, out);
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{1, -0x1p-24f, 65504}));
  const uint16_t bf16[] = {0x3f80, 0xc000, 0x0001};
  DequantizeRow(TensorType::kBF16, reinterpret_cast<const uint8_t*>(bf16), 3, out);
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{1, -2, 0x1p-133f}));
  const uint8_t f8[] = {0x38, 0x81, 0x7e};
  DequantizeRow(TensorType::kF8E4M3, f8, 3, out);
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{1, -0x1p-9f, 448}));
}

TEST(Dequantize, AnEmptyRowIsNothing) { DequantizeRow(TensorType::kQ4_K, nullptr, 0, nullptr); }

TEST(Dequantize, TakesFloatsAndQuantisedTypesOnly) {
  for (TensorType type : {TensorType::kI8, TensorType::kI16, TensorType::kI32, TensorType::kI64, TensorType::kU8,
                          TensorType::kBool, TensorType::kF64}) {
    EXPECT_FALSE(CanDequantize(type)) << TensorTypeName(type);
  }
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kF8E4M3}) {
    EXPECT_TRUE(CanDequantize(type)) << TensorTypeName(type);
  }
  for (const QuantType& q : QuantTypes()) EXPECT_TRUE(CanDequantize(q.type)) << TensorTypeName(q.type);
  uint8_t bytes[256] = {};
  float out[256];
  EXPECT_DEATH(DequantizeRow(TensorType::kI32, bytes, 1, out), "");
  EXPECT_DEATH(DequantizeRow(TensorType::kQ8_0, bytes, 16, out), "");
}

}  // namespace
}  // namespace sluice
