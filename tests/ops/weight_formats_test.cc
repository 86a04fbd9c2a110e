// Every row of engine/base/tensor_format.h against the code that goes by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/base/tensor_format.h"
#include "engine/ops/cpu/linear_kernels.h"
#include "engine/ops/cpu/packed_codec.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

constexpr Isa kIsas[] = {
    Isa::kPortable,
#if defined(__x86_64__)
    Isa::kAvx2,
    Isa::kAvx2Vnni,
    Isa::kAvx512,
#endif
};

// As ggml.h and the safetensors format publish them: ids of GGUF, values and bytes of a block.
struct Published {
  int gguf_id, block_elems, block_bytes;
};
const std::map<std::string, Published>& PublishedTypes() {
  static const auto* const kTypes = new std::map<std::string, Published>{
      {"F32", {0, 1, 4}},       {"F16", {1, 1, 2}},       {"Q4_0", {2, 32, 18}},    {"Q4_1", {3, 32, 20}},
      {"Q5_0", {6, 32, 22}},    {"Q5_1", {7, 32, 24}},    {"Q8_0", {8, 32, 34}},    {"Q2_K", {10, 256, 84}},
      {"Q3_K", {11, 256, 110}}, {"Q4_K", {12, 256, 144}}, {"Q5_K", {13, 256, 176}}, {"Q6_K", {14, 256, 210}},
      {"I8", {24, 1, 1}},       {"I16", {25, 1, 2}},      {"I32", {26, 1, 4}},      {"I64", {27, 1, 8}},
      {"F64", {28, 1, 8}},      {"BF16", {30, 1, 2}},     {"MXFP4", {39, 32, 17}}};
  return *kTypes;
}

TEST(WeightFormats, RowsAreAsTheFileFormatsPublishThem) {
  std::set<std::string> names;
  for (const TensorFormat& row : kTensorFormats) {
    EXPECT_TRUE(names.insert(row.stored.name).second) << row.stored.name << " has two rows";
    const auto published = PublishedTypes().find(row.stored.name);
    if (published == PublishedTypes().end()) {
      EXPECT_EQ(row.gguf_id, -1) << row.stored.name << " is not in this test";
      continue;
    }
    EXPECT_EQ(row.gguf_id, published->second.gguf_id) << row.stored.name;
    EXPECT_EQ(row.stored.block_elems, published->second.block_elems) << row.stored.name;
    EXPECT_EQ(row.stored.block_bytes, published->second.block_bytes) << row.stored.name;
  }
  for (const auto& [name, published] : PublishedTypes()) EXPECT_TRUE(names.contains(name)) << name << " has no row";
}

TEST(WeightFormats, ScalesLieInsideTheirBlock) {
  for (const TensorFormat& row : kTensorFormats) {
    const BlockCodes& codes = row.codes;
    if (codes.bits == 0) continue;
    EXPECT_EQ(codes.affine, codes.offset_at >= 0) << row.stored.name;
    EXPECT_EQ(codes.fp4, codes.scale_at < 0) << row.stored.name << ": only powers of two are not f16";
    EXPECT_EQ(codes.two_level, row.stored.block_elems == 256) << row.stored.name;
    for (const int at : ScaleOffsets(row.type)) EXPECT_LE(at + 2, row.stored.block_bytes) << row.stored.name;
    EXPECT_TRUE(codes.affine ? codes.zero == 0 : codes.zero > 0) << row.stored.name;
  }
}

TEST(WeightFormats, EveryWeightDecodesAndNothingElseDoes) {
  for (const TensorFormat& row : kTensorFormats) {
    EXPECT_EQ(CanDequantize(row.type), row.is_weight) << row.stored.name;
    EXPECT_EQ(PackedTypeFor(row.type).has_value(), row.is_weight) << row.stored.name;
    if (!row.is_weight) continue;
    const std::vector<uint8_t> zeros(static_cast<size_t>(row.stored.block_bytes));
    std::vector<float> values(static_cast<size_t>(row.stored.block_elems), 1);
    DequantizeRow(row.type, zeros.data(), row.stored.block_elems, values.data());
    for (const float value : values) EXPECT_LT(value, 1e-30f) << row.stored.name;
  }
}

// Each lane by itself, and whatever the other lanes hold.
TEST(WeightFormats, PanelsGiveBackTheStoredValues) {
  std::mt19937 rng(3);
  for (const TensorType type : WeightTypes()) {
    const TensorType packed = *PackedTypeFor(type);
    const int64_t k = 2 * std::max(kBlock, FormatOf(type).stored.block_elems);
    EXPECT_EQ(PanelBytes(packed, k) % 64, 0) << TensorTypeName(type);
    const StoredTensor rows = RandomTensor(type, kPanelRows, k, rng, /*wild=*/true);
    for (const TensorType form : {packed, TensorType::kF32}) {
      std::vector<uint8_t> panel(static_cast<size_t>(PanelBytes(form, k)));
      for (int lane = 0; lane < kPanelRows; ++lane)
        PackLane(type, rows.bytes.data() + lane * TensorBytes(type, k), k, form, lane, panel.data());
      for (int lane = 0; lane < kPanelRows; ++lane) {
        std::vector<float> values(static_cast<size_t>(k));
        UnpackLane(form, panel.data(), k, lane, values.data());
        const std::vector<float> stored = rows.Row(lane);
        for (size_t i = 0; i < stored.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(stored[i]))
              << TensorTypeName(type) << " as " << TensorTypeName(form) << ", lane " << lane << ", value " << i;
        }
      }
    }
  }
}

TEST(WeightFormats, EveryInstructionSetHasTheTilesOfEveryPanelAndNoOthers) {
  for (const TensorFormat& row : kTensorFormats) {
    const bool panels = HasCpuForm(row.type), integers = panels && row.codes.bits != 0;
    for (const Isa isa : kIsas) {
      const LinearKernels& kernels = GetLinearKernels(isa);
      EXPECT_EQ(kernels.isa, isa);
      EXPECT_EQ(kernels.Tile(ActivationType::kF32, row.type) != nullptr, panels) << row.stored.name;
      EXPECT_EQ(kernels.Tile(ActivationType::kInt8, row.type) != nullptr, integers) << row.stored.name;
      EXPECT_EQ(kernels.Tile(ActivationType::kInt16, row.type) != nullptr, integers) << row.stored.name;
    }
  }
}

}  // namespace
}  // namespace sluice
