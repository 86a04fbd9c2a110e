#include "engine/base/float16.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "gtest/gtest.h"

namespace sluice {
namespace {

// A small float format by its fields, and the functions that claim to convert it.
struct Format {
  const char* name;
  int exponent_bits, fraction_bits;
  bool has_infinity;  // E4M3 has none: its top exponent holds numbers, and one NaN
  std::function<float(uint32_t)> widen;
  std::function<uint32_t(float)> narrow;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + fraction_bits); }
  uint32_t largest() const {  // the largest finite code
    const uint32_t top = (sign_bit() - 1) & ~((1u << fraction_bits) - 1);
    return has_infinity ? top - 1 : sign_bit() - 2;
  }
  // The value of a finite code without sign, exact.
  double Value(uint32_t code) const {
    const int exponent = int(code >> fraction_bits);
    const double fraction = code & ((1u << fraction_bits) - 1);
    const double one = 1u << fraction_bits;
    return exponent == 0 ? std::ldexp(fraction / one, 1 - bias()) : std::ldexp(1 + fraction / one, exponent - bias());
  }
};

const Format kFormats[] = {
    {"f16", 5, 10, true, [](uint32_t c) { return F16ToFloat(uint16_t(c)); },
     [](float f) { return uint32_t(FloatToF16(f)); }},
    {"bf16", 8, 7, true, [](uint32_t c) { return Bf16ToFloat(uint16_t(c)); },
     [](float f) { return uint32_t(FloatToBf16(f)); }},
    {"f8_e4m3", 4, 3, false, [](uint32_t c) { return F8E4M3ToFloat(uint8_t(c)); },
     [](float f) { return uint32_t(FloatToF8E4M3(f)); }},
};

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Float16, EveryFiniteCodeWidensExactlyAndComesBack) {
  for (const Format& f : kFormats) {
    for (uint32_t code = 0; code <= f.largest(); ++code) {
      ASSERT_EQ(double(f.widen(code)), f.Value(code)) << f.name << " " << code;
      ASSERT_EQ(f.narrow(f.widen(code)), code) << f.name;
      ASSERT_EQ(f.widen(code | f.sign_bit()), -f.widen(code)) << f.name << " " << code;
      ASSERT_TRUE(std::signbit(f.widen(code | f.sign_bit()))) << f.name << " " << code;
      ASSERT_EQ(f.narrow(-f.widen(code)), code | f.sign_bit()) << f.name;
    }
  }
}

// Between two neighbours: the middle goes to the even one, anything else to the nearer.
TEST(Float16, NarrowingRoundsToNearestEven) {
  for (const Format& f : kFormats) {
    for (uint32_t code = 0; code < f.largest(); ++code) {
      const float middle = float((f.Value(code) + f.Value(code + 1)) / 2);
      const uint32_t even = code % 2 == 0 ? code : code + 1;
      ASSERT_EQ(f.narrow(middle), even) << f.name << " " << code;
      ASSERT_EQ(f.narrow(std::nextafter(middle, 0.0f)), code) << f.name << " " << code;
      ASSERT_EQ(f.narrow(std::nextafter(middle, kInf)), code + 1) << f.name << " " << code;
      ASSERT_EQ(f.narrow(-middle), even | f.sign_bit()) << f.name << " " << code;
    }
  }
}

TEST(Float16, TooLargeIsInfiniteOrSaturates) {
  EXPECT_EQ(FloatToF16(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToF16(1e30f), 0x7c00);
  EXPECT_EQ(FloatToF16(-kInf), 0xfc00);
  EXPECT_EQ(F16ToFloat(0x7c00), kInf);
  EXPECT_EQ(F16ToFloat(0xfc00), -kInf);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(FloatToBf16(kInf), 0x7f80);
  EXPECT_EQ(Bf16ToFloat(0xff80), -kInf);
  for (float f : {449.0f, 464.0f, 480.0f, 1e30f, kInf}) {
    EXPECT_EQ(FloatToF8E4M3(f), 0x7e);
    EXPECT_EQ(FloatToF8E4M3(-f), 0xfe);
  }
}

TEST(Float16, TheTiniestBecomesZeroOfItsSign) {
  for (const Format& f : kFormats) {
    EXPECT_EQ(f.narrow(0x1p-149f), 0u) << f.name;
    EXPECT_EQ(f.narrow(-0x1p-149f), f.sign_bit()) << f.name;
    EXPECT_EQ(f.narrow(-0.0f), f.sign_bit()) << f.name;
  }
}

TEST(Float16, NanStaysNan) {
  // A NaN whose payload would vanish by truncation must not become an infinity.
  const float sparse = std::bit_cast<float>(0x7f800001u);
  for (float nan : {std::numeric_limits<float>::quiet_NaN(), sparse, -sparse}) {
    for (const Format& f : kFormats) EXPECT_TRUE(std::isnan(f.widen(f.narrow(nan)))) << f.name;
  }
  for (uint32_t code = 0x7c01; code <= 0x7fff; ++code) EXPECT_TRUE(std::isnan(F16ToFloat(uint16_t(code))));
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(0x7f)));
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(0xff)));
}

}  // namespace
}  // namespace sluice
