#include "engine/scheduler/queue_time.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(QueuePaceTest, IsNotKnownBeforeAnybodyHasLeftTheQueue) {
  QueuePace pace(64);
  pace.Observe(0, 64, 0, 9);
  EXPECT_EQ(pace.drain().admissions_per_second, 0);
  pace.Observe(100 * kSecond, 0, 0, 9);
  EXPECT_EQ(pace.drain().admissions_per_second, 0);
  pace.Observe(101 * kSecond, 1, 0, 9);
  EXPECT_EQ(pace.drain().admissions_per_second, 0) << "one of so many is too few";
  pace.Observe(102 * kSecond, 7, 0, 9);
  EXPECT_GT(pace.drain().admissions_per_second, 0);
}

TEST(QueuePaceTest, OfAnEngineThatRunsOneAtATimeOneIsEnough) {
  QueuePace pace(1);
  pace.Observe(0, 1, 0, 9);
  pace.Observe(20 * kSecond, 1, 0, 9);
  EXPECT_DOUBLE_EQ(pace.drain().admissions_per_second, 1.0 / 20);
}

TEST(QueuePaceTest, IsAdmissionsOverTheTimeInWhichOthersWaited) {
  QueuePace pace(8);
  int64_t now = 0;
  pace.Observe(now, 8, 0, 9);
  for (int i = 0; i < 50; ++i) pace.Observe(now += kSecond / 2, 1, 0, 9);
  EXPECT_NEAR(pace.drain().admissions_per_second, 2, 0.01);
  pace.Observe(now += kSecond / 2, 1, 0, 0);
  // An hour in which whoever comes is admitted at once says nothing.
  for (int i = 0; i < 60; ++i) pace.Observe(now += 60 * kSecond, 1, 0, 0);
  EXPECT_NEAR(pace.drain().admissions_per_second, 2, 0.01);
  pace.Observe(now += kSecond, 1, 0, 9);
  EXPECT_NEAR(pace.drain().admissions_per_second, 2, 0.01);
}

TEST(QueuePaceTest, FollowsAChangeWithinAsManyAdmissionsAsMayRun) {
  QueuePace pace(8);
  int64_t now = 0;
  pace.Observe(now, 8, 0, 9);
  for (int i = 0; i < 50; ++i) pace.Observe(now += kSecond / 10, 1, 0, 9);
  for (int i = 0; i < 24; ++i) pace.Observe(now += kSecond, 1, 0, 9);
  EXPECT_NEAR(pace.drain().admissions_per_second, 1, 0.15);
  for (int i = 0; i < 24; ++i) pace.Observe(now += kSecond / 10, 1, 0, 9);
  EXPECT_GT(pace.drain().admissions_per_second, 4);
}

TEST(QueuePaceTest, CallsEndingTogetherLeaveThePaceUnchanged) {
  QueuePace pace(64);
  int64_t now = 0;
  pace.Observe(now, 64, 0, 9);
  for (int round = 0; round < 4; ++round) {
    for (int step = 1; step < 600; ++step) pace.Observe(now += kSecond / 10, 0, 0, 9);
    pace.Observe(now += kSecond / 10, 64, 0, 9);
    EXPECT_NEAR(pace.drain().admissions_per_second, 64.0 / 60, 0.01);
  }
}

TEST(QueuePaceTest, AStandstillSlowsIt) {
  QueuePace pace(4);
  pace.Observe(0, 4, 0, 9);
  for (int i = 1; i <= 8; ++i) pace.Observe(i * kSecond, 1, 0, 9);
  EXPECT_NEAR(pace.drain().admissions_per_second, 1, 0.01);
  pace.Observe(60 * kSecond, 0, 0, 9);
  EXPECT_LT(pace.drain().admissions_per_second, 0.15);
}

// One a second is admitted, and one gives up of the hundred that wait.
void PassSeconds(int seconds, QueuePace* pace, int64_t* now) {
  for (int i = 0; i < seconds; ++i) pace->Observe(*now += kSecond, 1, 1, 100);
}

TEST(QueuePaceTest, ThoseWhoGiveUpAreCountedPerTimeOfWaiting) {
  QueuePace pace(64);
  int64_t now = 0;
  pace.Observe(now, 64, 0, 100);
  PassSeconds(1000, &pace, &now);
  EXPECT_NEAR(pace.drain().admissions_per_second, 1, 1e-6);
  EXPECT_NEAR(pace.drain().giving_up_per_second, 0.01, 0.0002);
  // 63 wait: a minute if nobody gave up.
  EXPECT_NEAR(absl::ToDoubleSeconds(TimeToShrink(63, 63, pace.drain())), 49, 0.5);
}

TEST(QueuePaceTest, AThousandThatLeaveAtOnceAreNotThePaceOfTheEngine) {
  QueuePace pace(64);
  int64_t now = 0;
  pace.Observe(now, 64, 0, 1100);
  for (int i = 0; i < 200; ++i) pace.Observe(now += kSecond, 1, 0, 1100);
  pace.Observe(now += kSecond, 1, 1000, 100);
  EXPECT_NEAR(pace.drain().admissions_per_second, 1, 1e-6);
  EXPECT_LT(pace.drain().giving_up_per_second, 0.015);
  EXPECT_GT(TimeToShrink(60, 60, pace.drain()), absl::Seconds(40));
}

TEST(QueuePaceTest, OneThatGivesUpIsNoMeasure) {
  QueuePace pace(1);
  pace.Observe(0, 1, 0, 1);
  pace.Observe(kSecond / 1000, 0, 1, 9);
  pace.Observe(20 * kSecond, 1, 0, 9);
  EXPECT_GT(pace.drain().admissions_per_second, 0);
  EXPECT_EQ(pace.drain().giving_up_per_second, 0);
}

TEST(QueuePaceTest, WithoutGivingUpTheTimeIsCountOverPace) {
  EXPECT_EQ(TimeToShrink(30, 30, {.admissions_per_second = 0.5}), absl::Seconds(60));
  EXPECT_EQ(TimeToShrink(30, 10, {.admissions_per_second = 0.5}), absl::Seconds(20));
  EXPECT_EQ(TimeToShrink(30, 0, {.admissions_per_second = 0.5}), absl::ZeroDuration());
  EXPECT_EQ(TimeToShrink(30, 0, {.admissions_per_second = 0.5, .giving_up_per_second = 1}), absl::ZeroDuration());
}

TEST(QueuePaceTest, TheTimeIsThatOfAQueueThatLosesThoseWhoGiveUpToo) {
  const QueueDrain drain{.admissions_per_second = 2, .giving_up_per_second = 0.05};
  double waiting = 200, seconds = 0;
  constexpr double kStep = 1e-3;
  for (; waiting > 50; seconds += kStep) waiting -= kStep * (2 + 0.05 * waiting);
  EXPECT_NEAR(absl::ToDoubleSeconds(TimeToShrink(200, 150, drain)), seconds, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(TimeToShrink(200, 200, drain)),
              absl::ToDoubleSeconds(TimeToShrink(200, 150, drain) + TimeToShrink(50, 50, drain)), 1e-6);
}

}  // namespace
}  // namespace sluice
