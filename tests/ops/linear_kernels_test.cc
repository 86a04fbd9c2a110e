#include "engine/ops/cpu/linear_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/base/cpu_info.h"
#include "engine/ops/cpu/packed_codec.h"
#include "engine/ops/cpu/run_panel.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

constexpr ActivationType kActivationTypes[] = {ActivationType::kInt8, ActivationType::kInt16, ActivationType::kF32};

const char* Name(ActivationType type) {
  return type == ActivationType::kInt8 ? "int8" : type == ActivationType::kInt16 ? "int16" : "f32";
}

// Rows of activations in one type, made by one kernel table.
class Input {
 public:
  Input(const LinearKernels& kernels, ActivationType type, const std::vector<float>& x, int64_t k)
      : stride_(ActivationRowBytes(type, k)), type_(type), bytes_((x.size() / k) * stride_) {
    for (size_t row = 0; row < x.size() / k; ++row) {
      uint8_t* out = bytes_.data() + row * stride_;
      if (type == ActivationType::kF32) {
        std::memcpy(out, &x[row * k], stride_);
      } else {
        kernels.quantize[static_cast<int>(type)](&x[row * k], k, out);
      }
    }
  }
  ActivationRows rows() const { return {type_, bytes_.data(), stride_}; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  size_t stride_;
  ActivationType type_;
  std::vector<uint8_t> bytes_;
};

// [rows, panels * 32], padding lanes included.
std::vector<float> Multiply(const LinearKernels& kernels, const PackedLinear& linear, const ActivationRows& input,
                            int rows, ThreadPool* pool) {
  const int64_t width = linear.num_panels() * kPanelRows;
  std::vector<float> out(rows * width);
  pool->ParallelFor(static_cast<uint32_t>(linear.num_panels()), [&](uint32_t p, int) {
    RunPanel(kernels, linear.panel(p), linear.k(), input, rows, [&](int first, int count, const float* tile) {
      for (int r = 0; r < count; ++r) {
        std::memcpy(&out[(first + r) * width + p * kPanelRows], tile + r * kPanelRows, kPanelRows * sizeof(float));
      }
    });
  });
  return out;
}

// All NaNs are one: which payload an operation passes on is not defined.
bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

class LinearKernelsTest : public ::testing::Test {
 protected:
  PackedLinear Pack(const StoredTensor& tensor) {
    return PackedLinear::Pack(std::vector<TensorView>{tensor.view}, LinearLayout::kStacked, &pool_, &arena_).value();
  }
  std::vector<float> Normal(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& value : x) value = normal(rng_);
    return x;
  }

  std::mt19937 rng_{11};
  ThreadPool pool_{3};
  HugePageArena arena_;
};

TEST_F(LinearKernelsTest, EveryInstructionSetGivesThePortableBits) {
  constexpr int kRows = 37;
  constexpr int64_t kOut = 70, kIn = 512;
  const LinearKernels& portable = GetLinearKernels(Isa::kPortable);
  const std::vector<float> x = Normal(kRows * kIn);
  for (TensorType type : WeightTypes()) {
    const PackedLinear linear = Pack(RandomTensor(type, kOut, kIn, rng_));
    for (ActivationType activation : kActivationTypes) {
      if (activation != ActivationType::kF32 && !linear.quantized()) continue;
      const Input input(portable, activation, x, kIn);
      const std::vector<float> expected = Multiply(portable, linear, input.rows(), kRows, &pool_);
      for (Isa isa : SupportedIsas()) {
        const LinearKernels& kernels = GetLinearKernels(isa);
        EXPECT_EQ(kernels.isa, isa);
        for (int rows = 1; rows <= kRows; ++rows) {
          if (isa == Isa::kPortable && rows % 9 != 1) continue;
          const std::vector<float> out = Multiply(kernels, linear, input.rows(), rows, &pool_);
          ASSERT_EQ(0, std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)))
              << TensorTypeName(type) << ' ' << Name(activation) << ' ' << IsaName(isa) << " rows " << rows;
        }
      }
    }
  }
}

TEST_F(LinearKernelsTest, FloatRowsOfAnyLengthGiveThePortableBits) {
  const LinearKernels& portable = GetLinearKernels(Isa::kPortable);
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    for (int64_t k : {1, 31, 33, 100}) {
      const std::vector<float> x = Normal(5 * k);
      const Input input(portable, ActivationType::kF32, x, k);
      const PackedLinear linear = Pack(RandomTensor(type, 33, k, rng_));
      const std::vector<float> expected = Multiply(portable, linear, input.rows(), 5, &pool_);
      for (Isa isa : SupportedIsas()) {
        EXPECT_EQ(Multiply(GetLinearKernels(isa), linear, input.rows(), 5, &pool_), expected) << IsaName(isa);
      }
    }
  }
}

TEST_F(LinearKernelsTest, ExtremeCodesAndDigitsDoNotOverflow) {
  // All codes and digits at their largest magnitude, of either sign, in every type.
  constexpr int64_t kIn = 256;
  const LinearKernels& portable = GetLinearKernels(Isa::kPortable);
  for (TensorType type : WeightTypes()) {
    if (ScaleOffsets(type).empty()) continue;
    for (uint8_t fill : {0x00, 0x80, 0xff, 0x7f}) {
      StoredTensor tensor = RandomTensor(type, 32, kIn, rng_);
      const TensorTypeInfo& info = GetTensorTypeInfo(type);
      for (size_t block = 0; block < tensor.bytes.size(); block += info.block_bytes) {
        std::fill_n(&tensor.bytes[block], info.block_bytes, fill);
        for (int offset : ScaleOffsets(type)) tensor.bytes[block + offset] = 0, tensor.bytes[block + offset + 1] = 0x3c;
      }
      tensor.view.data = absl::MakeConstSpan(tensor.bytes);
      const PackedLinear linear = Pack(tensor);
      if (!linear.quantized()) continue;
      for (float sign : {1.0f, -1.0f, 0.0f}) {
        std::vector<float> x(kIn);
        for (int64_t i = 0; i < kIn; ++i) x[i] = sign != 0 ? sign : (i % 2 ? 1.0f : -1.0f);
        for (ActivationType activation : {ActivationType::kInt8, ActivationType::kInt16}) {
          const Input input(portable, activation, x, kIn);
          const std::vector<float> expected = Multiply(portable, linear, input.rows(), 1, &pool_);
          double exact = 0, size = 0;
          const std::vector<float> row = tensor.Row(0);
          for (int64_t i = 0; i < kIn; ++i) exact += double(row[i]) * x[i], size += std::abs(double(row[i]));
          EXPECT_NEAR(expected[0], exact, 1e-5 * size + 1e-3) << TensorTypeName(type);
          for (Isa isa : SupportedIsas()) {
            ASSERT_EQ(Multiply(GetLinearKernels(isa), linear, input.rows(), 1, &pool_), expected)
                << TensorTypeName(type) << ' ' << Name(activation) << ' ' << IsaName(isa) << " fill " << int(fill);
          }
        }
      }
    }
  }
}

// The error of one output is at most half a quantisation step of each activation times its weight, and the rounding of
// the float operations.
TEST_F(LinearKernelsTest, ErrorsAgainstExactArithmeticAreBounded) {
  constexpr int kRows = 8;
  constexpr int64_t kOut = 64, kIn = 1536;
  const std::vector<float> x = Normal(kRows * kIn);
  const LinearKernels& kernels = GetLinearKernels(BestIsa());
  for (TensorType type : WeightTypes()) {
    const StoredTensor tensor = RandomTensor(type, kOut, kIn, rng_);
    const PackedLinear linear = Pack(tensor);
    for (ActivationType activation : kActivationTypes) {
      if (activation != ActivationType::kF32 && !linear.quantized()) continue;
      const float range = activation == ActivationType::kInt8 ? kActivationRange<1> : kActivationRange<2>;
      const Input input(kernels, activation, x, kIn);
      const std::vector<float> out = Multiply(kernels, linear, input.rows(), kRows, &pool_);
      double error2 = 0, total2 = 0;
      for (int64_t i = 0; i < kOut; ++i) {
        const std::vector<float> w = tensor.Row(i);
        float largest_w = 0;
        for (float value : w) largest_w = std::max(largest_w, std::abs(value));
        for (int r = 0; r < kRows; ++r) {
          double exact = 0, bound = 0;
          for (int64_t b = 0; b < kIn; b += kBlock) {
            float largest_x = 0;
            for (int64_t j = b; j < b + kBlock; ++j) largest_x = std::max(largest_x, std::abs(x[r * kIn + j]));
            for (int64_t j = b; j < b + kBlock; ++j) {
              exact += double(w[j]) * x[r * kIn + j];
              if (activation != ActivationType::kF32) bound += std::abs(double(w[j])) * largest_x / range * 0.501;
              bound += 4e-7 * 3 * largest_w * std::abs(x[r * kIn + j]);
            }
          }
          const double error = out[r * linear.num_panels() * kPanelRows + i] - exact;
          ASSERT_LE(std::abs(error), bound) << TensorTypeName(type) << ' ' << Name(activation);
          error2 += error * error, total2 += exact * exact;
        }
      }
      const double relative = std::sqrt(error2 / total2);
      const double limit = activation == ActivationType::kInt8    ? 1e-2
                           : activation == ActivationType::kInt16 ? 1e-4
                                                                  : 2e-6;
      EXPECT_LT(relative, limit) << TensorTypeName(type) << ' ' << Name(activation);
    }
  }
}

TEST_F(LinearKernelsTest, PaddingLanesGiveZero) {
  const StoredTensor tensor = RandomTensor(TensorType::kQ4_0, 3, 64, rng_);
  const PackedLinear linear = Pack(tensor);
  const std::vector<float> x = Normal(64);
  for (Isa isa : SupportedIsas()) {
    for (ActivationType activation : kActivationTypes) {
      const LinearKernels& kernels = GetLinearKernels(isa);
      const Input input(kernels, activation, x, 64);
      const std::vector<float> out = Multiply(kernels, linear, input.rows(), 1, &pool_);
      for (int lane = 3; lane < kPanelRows; ++lane) EXPECT_EQ(out[lane], 0);
    }
  }
}

// Rows of 32 that quantising must get right, each for its own reason.
std::vector<std::vector<float>> AwkwardBlocks() {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
  std::vector<std::vector<float>> blocks;
  const auto add = [&](auto value_of) {
    std::vector<float> block(kBlock);
    for (int i = 0; i < kBlock; ++i) block[i] = value_of(i);
    blocks.push_back(block);
  };
  add([](int) { return 0.0f; });
  add([](int i) { return i % 2 ? 0.0f : -0.0f; });
  add([](int i) { return static_cast<float>(i - 16); });
  add([](int i) { return i == 5 ? -1.0f : 0.5f / 127.0f * static_cast<float>(i % 3); });  // ties of one digit
  add([](int i) { return i == 31 ? 1.0f : 0.5f / 16256.0f * static_cast<float>(i); });    // ties of two
  for (float scale :
       {kMax, -kMax, 1e30f, 1e-30f, 2e-34f, 1.9e-34f, 1.8e-34f, 1.5e-36f, 1.4e-36f, 1e-38f, kTiny, 100 * kTiny}) {
    add([&](int i) { return scale * (i == 9 ? 1.0f : static_cast<float>(i) / 33); });
  }
  for (float bad : {kInf, -kInf, kNan, -kNan}) {
    for (int at : {0, 15, 16, 31}) {
      add([&](int i) { return i == at ? bad : 1.0f; });
    }
  }
  return blocks;
}

template <int Digits>
void ExpectPortableBlocks(ActivationType type, const std::vector<float>& x) {
  const auto count = x.size() / kBlock;
  std::vector<ActivationBlock<Digits>> expected(count), actual(count);
  GetLinearKernels(Isa::kPortable).quantize[static_cast<int>(type)](x.data(), x.size(), expected.data());
  for (Isa isa : SupportedIsas()) {
    std::memset(static_cast<void*>(actual.data()), 0x5a, count * sizeof(actual[0]));
    GetLinearKernels(isa).quantize[static_cast<int>(type)](x.data(), x.size(), actual.data());
    for (size_t b = 0; b < count; ++b) {
      ASSERT_TRUE(SameBits(actual[b].scale, expected[b].scale)) << IsaName(isa) << " block " << b;
      ASSERT_TRUE(SameBits(actual[b].scaled_sum, expected[b].scaled_sum)) << IsaName(isa) << " block " << b;
      ASSERT_EQ(actual[b].neg_sum, expected[b].neg_sum) << IsaName(isa) << " block " << b;
      ASSERT_EQ(actual[b].neg_sum_low, expected[b].neg_sum_low) << IsaName(isa) << " block " << b;
      ASSERT_EQ(0, std::memcmp(actual[b].digits, expected[b].digits, sizeof(actual[b].digits))) << IsaName(isa);
    }
  }
}

TEST_F(LinearKernelsTest, QuantisingGivesThePortableBits) {
  std::vector<float> x = Normal(3200);
  for (const std::vector<float>& block : AwkwardBlocks()) x.insert(x.end(), block.begin(), block.end());
  ExpectPortableBlocks<1>(ActivationType::kInt8, x);
  ExpectPortableBlocks<2>(ActivationType::kInt16, x);
}

template <int Digits>
void ExpectNearestMultiples(ActivationType type, const std::vector<float>& x) {
  std::vector<ActivationBlock<Digits>> blocks(x.size() / kBlock);
  GetLinearKernels(BestIsa()).quantize[static_cast<int>(type)](x.data(), x.size(), blocks.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const ActivationBlock<Digits>& block = blocks[i / kBlock];
    const int first = block.digits[0][i % kBlock], last = block.digits[Digits - 1][i % kBlock];
    const int q = Digits == 2 ? 128 * first + last : first;
    EXPECT_LE(std::abs(q), kActivationRange<Digits>);
    EXPECT_NEAR(double(block.scale) * q, x[i], 0.505 * block.scale);
  }
}

TEST_F(LinearKernelsTest, QuantisingRoundsToTheNearestMultipleOfTheScale) {
  const std::vector<float> x = Normal(3200);
  ExpectNearestMultiples<1>(ActivationType::kInt8, x);
  ExpectNearestMultiples<2>(ActivationType::kInt16, x);
}

TEST_F(LinearKernelsTest, NonFiniteActivationsMakeTheirOwnRowNanAndNoOther) {
  for (TensorType type :
       {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0, TensorType::kQ5_K, TensorType::kQ6_K}) {
    const PackedLinear linear = Pack(RandomTensor(type, 40, 256, rng_));
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x = Normal(3 * 256);
      x[256 + 77] = bad;
      for (Isa isa : SupportedIsas()) {
        for (ActivationType activation : kActivationTypes) {
          const LinearKernels& kernels = GetLinearKernels(isa);
          const Input input(kernels, activation, x, 256);
          const std::vector<float> out = Multiply(kernels, linear, input.rows(), 3, &pool_);
          for (int64_t i = 0; i < 40; ++i) {
            EXPECT_TRUE(std::isfinite(out[i]) && std::isfinite(out[2 * 64 + i]));
            EXPECT_FALSE(std::isfinite(out[64 + i])) << IsaName(isa);
            EXPECT_TRUE(activation == ActivationType::kF32 || std::isnan(out[64 + i])) << IsaName(isa);
          }
        }
      }
    }
  }
}

TEST_F(LinearKernelsTest, ZeroAndTinyActivationsGiveZeroOrTinyOutputs) {
  const PackedLinear linear = Pack(RandomTensor(TensorType::kQ4_1, 32, 64, rng_));
  for (float value : {0.0f, 1e-40f, 1e-36f}) {
    const std::vector<float> x(64, value);
    for (Isa isa : SupportedIsas()) {
      for (ActivationType activation : kActivationTypes) {
        const LinearKernels& kernels = GetLinearKernels(isa);
        const Input input(kernels, activation, x, 64);
        for (float out : Multiply(kernels, linear, input.rows(), 1, &pool_)) EXPECT_LE(std::abs(out), 64 * value);
      }
    }
  }
}

TEST_F(LinearKernelsTest, RowsMayLieAnyDistanceApart) {
  const PackedLinear linear = Pack(RandomTensor(TensorType::kQ5_0, 32, 64, rng_));
  const std::vector<float> x = Normal(4 * 64);
  for (Isa isa : SupportedIsas()) {
    const LinearKernels& kernels = GetLinearKernels(isa);
    const Input input(kernels, ActivationType::kInt16, x, 64);
    const size_t row_bytes = ActivationRowBytes(ActivationType::kInt16, 64), stride = row_bytes + 52;
    std::vector<uint8_t> apart(4 * stride, 0xee);
    for (int r = 0; r < 4; ++r) std::memcpy(&apart[r * stride], &input.bytes()[r * row_bytes], row_bytes);
    EXPECT_EQ(Multiply(kernels, linear, {ActivationType::kInt16, apart.data(), stride}, 4, &pool_),
              Multiply(kernels, linear, input.rows(), 4, &pool_));
  }
}

}  // namespace
}  // namespace sluice
