#include "server/calls/rate_meter.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(RateMeter, CountsTheLastTenSeconds) {
  RateMeter meter;
  EXPECT_EQ(meter.PerSecond(100 * kSecond), 0);
  meter.Add(100 * kSecond, 50);
  meter.Add(104 * kSecond, 50);
  EXPECT_EQ(meter.PerSecond(104 * kSecond), 10);
  EXPECT_EQ(meter.PerSecond(109 * kSecond), 10);
  EXPECT_EQ(meter.PerSecond(111 * kSecond), 5);
  EXPECT_EQ(meter.PerSecond(115 * kSecond), 0);
}

TEST(RateMeter, OldSlotsAreUsedAgain) {
  RateMeter meter;
  for (int64_t second = 0; second < 100; ++second) meter.Add(second * kSecond, 7);
  EXPECT_EQ(meter.PerSecond(99 * kSecond), 7);
}

}  // namespace
}  // namespace sluice
