#include "engine/scheduler/output_lengths.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(OutputLengthsTest, WithoutAnyEndOutputsGoOnToAThousandTokens) {
  const OutputLengths lengths(100000);
  const auto survival = lengths.Estimate({});
  EXPECT_GT(survival(0, 1000), 0.98);
  EXPECT_EQ(survival(500, 500), 1);
  EXPECT_NEAR(survival(0, 4096), 0.25, 0.02) << "each doubling behind 1,024 halves them";
  EXPECT_NEAR(survival(8192, 32768), 0.25, 0.02);
}

TEST(OutputLengthsTest, EndsOfTheirOwnAccordSayHowManyGetFurther) {
  OutputLengths lengths(10000);
  for (int i = 0; i < 60; ++i) lengths.Record(i % 2 == 0 ? 40 : 400, /*stopped=*/true);
  const auto survival = lengths.Estimate({});
  EXPECT_NEAR(survival(0, 32), 1, 0.01);
  EXPECT_NEAR(survival(0, 60), 0.5, 0.05);
  EXPECT_NEAR(survival(0, 350), 0.5, 0.05);
  EXPECT_LT(survival(0, 500), 0.05);
  EXPECT_NEAR(survival(100, 350), 1, 0.01) << "whoever got over 40 gets to 400";
  EXPECT_LT(survival(100, 500), 0.1);
}

TEST(OutputLengthsTest, OutputsCutByMaxTokensSayNothingBeyond) {
  OutputLengths lengths(10000);
  for (int i = 0; i < 60; ++i) lengths.Record(96, /*stopped=*/false);
  const auto survival = lengths.Estimate({});
  EXPECT_GT(survival(0, 1000), 0.98);
  for (int i = 0; i < 60; ++i) lengths.Record(96, /*stopped=*/true);
  EXPECT_NEAR(lengths.Estimate({})(0, 100), 0.28, 0.06) << "the cut ones were there as well, and are older";
}

TEST(OutputLengthsTest, OutputsThatStillGrowCountAmongThoseThatGotSoFar) {
  OutputLengths lengths(10000);
  for (int i = 0; i < 10; ++i) lengths.Record(10, /*stopped=*/true);
  EXPECT_LT(lengths.Estimate({})(0, 100), 0.15);
  EXPECT_NEAR(lengths.Estimate(std::vector<int32_t>(10, 200))(0, 100), 0.5, 0.06);
}

TEST(OutputLengthsTest, OldEndsFade) {
  OutputLengths lengths(10000);
  for (int i = 0; i < 1000; ++i) lengths.Record(20, /*stopped=*/true);
  EXPECT_LT(lengths.Estimate({})(0, 50), 0.02);
  for (int i = 0; i < 500; ++i) lengths.Record(2000, /*stopped=*/true);
  EXPECT_GT(lengths.Estimate({})(0, 50), 0.95);
}

TEST(OutputLengthsTest, TheShareNeverRisesAndIsNeverNothing) {
  OutputLengths lengths(5000);
  for (int i = 0; i < 300; ++i) lengths.Record(i * 7 % 5001, i % 3 != 0);
  const auto survival = lengths.Estimate({5, 700, 4999});
  double before = 1;
  for (int32_t length = 0; length <= 6000; ++length) {
    const double share = survival(0, length);
    ASSERT_LE(share, before);
    ASSERT_GT(share, 0);
    before = share;
  }
}

TEST(OutputLengthsTest, LengthsAtTheBordersOfTheirTypesDoNotOverflow) {
  OutputLengths lengths(INT32_MAX);
  lengths.Record(INT32_MAX, true);
  lengths.Record(0, true);
  EXPECT_GT(lengths.Estimate({INT32_MAX})(0, INT32_MAX), 0);
  EXPECT_GE(OutputLengths(1).Estimate({})(0, 1), 0.9);
}

}  // namespace
}  // namespace sluice
