#include "engine/ops/cpu/packed_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <vector>

#include "engine/ops/cpu/packed_codec.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class PackedLinearTest : public ::testing::Test {
 protected:
  absl::StatusOr<PackedLinear> Pack(const std::vector<TensorView>& parts,
                                    LinearLayout layout = LinearLayout::kStacked) {
    return PackedLinear::Pack(parts, layout, &pool_, &arena_);
  }

  static std::vector<uint32_t> Bits(const std::vector<float>& values) {
    std::vector<uint32_t> bits;
    for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
    return bits;
  }

  static std::vector<float> Unpack(const PackedLinear& linear, int64_t row) {
    std::vector<float> values(linear.k());
    linear.UnpackRow(row, values.data());
    return values;
  }

  std::mt19937 rng_{7};
  ThreadPool pool_{3};
  HugePageArena arena_;
};

TEST_F(PackedLinearTest, UnpacksEveryTypeBitForBit) {
  for (TensorType type : WeightTypes()) {
    for (bool wild : {false, true}) {
      for (int64_t n : {1, 31, 32, 33, 70}) {
        const int64_t k = GetTensorTypeInfo(type).block_elems == 256 ? 768 : 96;
        const StoredTensor tensor = RandomTensor(type, n, k, rng_, wild);
        const absl::StatusOr<PackedLinear> linear = Pack({tensor.view});
        ASSERT_TRUE(linear.ok()) << linear.status();
        EXPECT_EQ(linear->num_rows(), n);
        EXPECT_EQ(linear->k(), k);
        for (int64_t row = 0; row < n; ++row) {
          ASSERT_EQ(Bits(Unpack(*linear, row)), Bits(tensor.Row(row))) << TensorTypeName(type) << " row " << row;
        }
      }
    }
  }
}

TEST_F(PackedLinearTest, TakesFloatRowsOfAnyLength) {
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    for (int64_t k : {1, 5, 33, 100}) {
      const StoredTensor tensor = RandomTensor(type, 3, k, rng_);
      const absl::StatusOr<PackedLinear> linear = Pack({tensor.view});
      ASSERT_TRUE(linear.ok()) << linear.status();
      for (int64_t row = 0; row < 3; ++row) ASSERT_EQ(Bits(Unpack(*linear, row)), Bits(tensor.Row(row)));
    }
  }
}

TEST_F(PackedLinearTest, EverySourceByteMatters) {
  for (TensorType type : WeightTypes()) {
    const int64_t k = GetTensorTypeInfo(type).block_elems;
    if (k == 1) continue;
    StoredTensor tensor = RandomTensor(type, 1, k, rng_);
    const std::vector<uint32_t> before = Bits(Unpack(Pack({tensor.view}).value(), 0));
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      const uint8_t old = tensor.bytes[i];
      tensor.bytes[i] ^= 0x11;
      const PackedLinear changed = Pack({tensor.view}).value();
      EXPECT_EQ(Bits(Unpack(changed, 0)), Bits(tensor.Row(0))) << TensorTypeName(type) << " byte " << i;
      tensor.bytes[i] = old;
    }
    EXPECT_EQ(Bits(Unpack(Pack({tensor.view}).value(), 0)), before);
  }
}

TEST_F(PackedLinearTest, StacksPartsOfDifferentTypesAndOddSizes) {
  std::vector<StoredTensor> parts;
  for (const auto& [type, n] : {std::pair{TensorType::kQ4_K, 50},
                                {TensorType::kQ4_K, 7},
                                {TensorType::kQ6_K, 33},
                                {TensorType::kF32, 3},
                                {TensorType::kQ4_K, 64}}) {
    parts.push_back(RandomTensor(type, n, 256, rng_));
  }
  std::vector<TensorView> views;
  for (const StoredTensor& part : parts) views.push_back(part.view);
  const PackedLinear linear = Pack(views).value();
  EXPECT_EQ(linear.num_rows(), 157);
  EXPECT_EQ(linear.num_panels(), 2 + 2 + 1 + 2);  // the first two parts share panels
  EXPECT_FALSE(linear.quantized());
  int64_t row = 0;
  for (const StoredTensor& part : parts) {
    for (int64_t i = 0; i < part.view.shape[0]; ++i, ++row)
      ASSERT_EQ(Bits(Unpack(linear, row)), Bits(part.Row(i))) << row;
  }
  int64_t next = 0;
  for (int64_t p = 0; p < linear.num_panels(); ++p) {
    const PanelView panel = linear.panel(p);
    EXPECT_EQ(panel.first_row, next);
    for (int lane = 0; lane < kPanelRows; ++lane) {
      std::vector<float> values(256);
      UnpackLane(panel.type, panel.data, 256, lane, values.data());
      const std::vector<float> expected =
          lane < panel.num_rows ? Unpack(linear, panel.first_row + lane) : std::vector<float>(256);
      for (int i = 0; i < 256; ++i) ASSERT_EQ(values[i], expected[i]) << "panel " << p << " lane " << lane;
    }
    next += panel.num_rows;
  }
  EXPECT_EQ(next, 157);
}

TEST_F(PackedLinearTest, GateAndUpLieSixteenBySixteen) {
  for (int64_t n : {16, 20, 48}) {
    const StoredTensor gate = RandomTensor(TensorType::kQ5_1, n, 64, rng_),
                       up = RandomTensor(TensorType::kQ5_1, n, 64, rng_);
    const PackedLinear linear = Pack({gate.view, up.view}, LinearLayout::kGateUp).value();
    EXPECT_EQ(linear.num_rows(), 2 * n);
    EXPECT_EQ(linear.num_panels(), (n + 15) / 16);
    for (int64_t row = 0; row < n; ++row) {
      ASSERT_EQ(Bits(Unpack(linear, row)), Bits(gate.Row(row)));
      ASSERT_EQ(Bits(Unpack(linear, n + row)), Bits(up.Row(row)));
      const PanelView panel = linear.panel(row / 16);
      EXPECT_EQ(panel.first_row, row / 16 * 16);
      EXPECT_EQ(panel.num_rows, std::min<int64_t>(16, n - row / 16 * 16));
      std::vector<float> lane(64);
      UnpackLane(panel.type, panel.data, 64, static_cast<int>(16 + row % 16), lane.data());
      EXPECT_EQ(Bits(lane), Bits(up.Row(row)));
    }
  }
}

TEST_F(PackedLinearTest, GateAndUpOfDifferentTypesStayExact) {
  const StoredTensor gate = RandomTensor(TensorType::kQ4_K, 40, 256, rng_),
                     up = RandomTensor(TensorType::kQ6_K, 40, 256, rng_);
  const PackedLinear linear = Pack({gate.view, up.view}, LinearLayout::kGateUp).value();
  for (int64_t row = 0; row < 40; ++row) {
    ASSERT_EQ(Bits(Unpack(linear, row)), Bits(gate.Row(row)));
    ASSERT_EQ(Bits(Unpack(linear, 40 + row)), Bits(up.Row(row)));
  }
}

TEST_F(PackedLinearTest, PackedSizeIsCloseToTheStoredSize) {
  struct Case {
    TensorType type;
    double ratio;
  };
  for (const Case& c : {Case{TensorType::kQ4_0, 1},
                        {TensorType::kQ4_1, 1},
                        {TensorType::kQ5_0, 1},
                        {TensorType::kQ5_1, 1},
                        {TensorType::kQ8_0, 1},
                        {TensorType::kQ4_K, 148.0 / 144},
                        {TensorType::kQ5_K, 180.0 / 176},
                        {TensorType::kQ6_K, 1},
                        {TensorType::kQ3_K, 210.0 / 110},
                        {TensorType::kQ2_K, 1024.0 / 84},
                        {TensorType::kF32, 1},
                        {TensorType::kF16, 1},
                        {TensorType::kBF16, 1},
                        {TensorType::kMXFP4, 18.0 / 17},
                        {TensorType::kF8E4M3, 2}}) {
    const StoredTensor tensor = RandomTensor(c.type, 64, 512, rng_);
    const PackedLinear linear = Pack({tensor.view}).value();
    EXPECT_DOUBLE_EQ(static_cast<double>(linear.bytes()), c.ratio * static_cast<double>(tensor.bytes.size()))
        << TensorTypeName(c.type);
  }
}

TEST_F(PackedLinearTest, SourcesAndArenaMayGo) {
  std::optional<PackedLinear> linear;
  std::vector<float> expected;
  {
    HugePageArena arena;
    const StoredTensor tensor = RandomTensor(TensorType::kQ4_1, 5, 64, rng_);
    expected = tensor.Row(4);
    linear = PackedLinear::Pack(std::vector<TensorView>{tensor.view}, LinearLayout::kStacked, &pool_, &arena).value();
  }
  const PackedLinear copy = *linear;
  linear.reset();
  EXPECT_EQ(Bits(Unpack(copy, 4)), Bits(expected));
}

class PackedLinearErrorTest : public PackedLinearTest {
 protected:
  void ExpectInvalid(const std::vector<TensorView>& parts, const std::string& text,
                     LinearLayout layout = LinearLayout::kStacked) {
    const absl::StatusOr<PackedLinear> linear = Pack(parts, layout);
    EXPECT_EQ(linear.status().code(), absl::StatusCode::kInvalidArgument) << linear.status();
    EXPECT_THAT(std::string(linear.status().message()), HasSubstr(text));
  }
};

TEST_F(PackedLinearErrorTest, ErrorsNameTheTensorAndWhatIsWrong) {
  const StoredTensor good = RandomTensor(TensorType::kQ4_0, 8, 64, rng_);
  TensorView bad = good.view;
  bad.name = "blk.3.attn_k.weight";
  ExpectInvalid({}, "at least one");

  bad.shape = {8, 48};
  ExpectInvalid({bad}, "'blk.3.attn_k.weight': rows of 48 values, expected a multiple of 32 for Q4_0");
  bad.shape = {8, 2, 32};
  ExpectInvalid({bad}, "expected [out, in]");
  bad.shape = {0, 64};
  ExpectInvalid({bad}, "expected [out, in]");
  bad.shape = {9, 64};
  ExpectInvalid({bad}, "288 bytes of data do not fit shape [9, 64] of Q4_0");
  bad.shape = {int64_t{1} << 62, int64_t{1} << 40};
  ExpectInvalid({bad}, "do not fit shape");
  bad.shape = {4, 128};
  ExpectInvalid({good.view, bad}, "rows of 128 values, expected 64 as in 'test.Q4_0'");
  bad = good.view;
  bad.type = TensorType::kI32;
  ExpectInvalid({bad}, "type is I32");
}

TEST_F(PackedLinearErrorTest, GateAndUpMustMatch) {
  const StoredTensor gate = RandomTensor(TensorType::kQ4_0, 16, 64, rng_),
                     up = RandomTensor(TensorType::kQ4_0, 32, 64, rng_);
  ExpectInvalid({gate.view, up.view}, "found [16, 64] and [32, 64]", LinearLayout::kGateUp);
  ExpectInvalid({gate.view}, "two tensors", LinearLayout::kGateUp);
}

}  // namespace
}  // namespace sluice
