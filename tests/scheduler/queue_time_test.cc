#include "engine/scheduler/queue_time.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(QueuePaceTest, IsNotKnownBeforeAnybodyHasLeftTheQueue) {
  QueuePace pace(64);
  pace.Observe(0, 64, true);
  EXPECT_EQ(pace.per_second(), 0);
  pace.Observe(100 * kSecond, 0, true);
  EXPECT_EQ(pace.per_second(), 0);
  pace.Observe(101 * kSecond, 1, true);
  EXPECT_EQ(pace.per_second(), 0) << "one of so many is too few";
  pace.Observe(102 * kSecond, 7, true);
  EXPECT_GT(pace.per_second(), 0);
}

TEST(QueuePaceTest, OfAnEngineThatRunsOneAtATimeOneIsEnough) {
  QueuePace pace(1);
  pace.Observe(0, 1, true);
  pace.Observe(20 * kSecond, 1, true);
  EXPECT_DOUBLE_EQ(pace.per_second(), 1.0 / 20);
}

TEST(QueuePaceTest, IsAdmissionsOverTheTimeInWhichOthersWaited) {
  QueuePace pace(8);
  int64_t now = 0;
  pace.Observe(now, 8, true);
  for (int i = 0; i < 50; ++i) pace.Observe(now += kSecond / 2, 1, true);
  EXPECT_NEAR(pace.per_second(), 2, 0.01);
  pace.Observe(now += kSecond / 2, 1, false);
  // An hour in which whoever comes is admitted at once says nothing.
  for (int i = 0; i < 60; ++i) pace.Observe(now += 60 * kSecond, 1, false);
  EXPECT_NEAR(pace.per_second(), 2, 0.01);
  pace.Observe(now += kSecond, 1, true);
  EXPECT_NEAR(pace.per_second(), 2, 0.01);
}

TEST(QueuePaceTest, FollowsAChangeWithinAsManyAdmissionsAsMayRun) {
  QueuePace pace(8);
  int64_t now = 0;
  pace.Observe(now, 8, true);
  for (int i = 0; i < 50; ++i) pace.Observe(now += kSecond / 10, 1, true);
  for (int i = 0; i < 24; ++i) pace.Observe(now += kSecond, 1, true);
  EXPECT_NEAR(pace.per_second(), 1, 0.15);
  for (int i = 0; i < 24; ++i) pace.Observe(now += kSecond / 10, 1, true);
  EXPECT_GT(pace.per_second(), 4);
}

TEST(QueuePaceTest, CallsEndingTogetherLeaveThePaceUnchanged) {
  QueuePace pace(64);
  int64_t now = 0;
  pace.Observe(now, 64, true);
  for (int round = 0; round < 4; ++round) {
    for (int step = 1; step < 600; ++step) pace.Observe(now += kSecond / 10, 0, true);
    pace.Observe(now += kSecond / 10, 64, true);
    EXPECT_NEAR(pace.per_second(), 64.0 / 60, 0.01);
  }
}

TEST(QueuePaceTest, AStandstillSlowsIt) {
  QueuePace pace(4);
  pace.Observe(0, 4, true);
  for (int i = 1; i <= 8; ++i) pace.Observe(i * kSecond, 1, true);
  EXPECT_NEAR(pace.per_second(), 1, 0.01);
  pace.Observe(60 * kSecond, 0, true);
  EXPECT_LT(pace.per_second(), 0.15);
}

TEST(QueuePaceTest, TimeToAdmitIsCountOverPace) {
  EXPECT_EQ(TimeToAdmit(30, 0.5), absl::Seconds(60));
  EXPECT_EQ(TimeToAdmit(0, 0.5), absl::ZeroDuration());
}

}  // namespace
}  // namespace sluice
