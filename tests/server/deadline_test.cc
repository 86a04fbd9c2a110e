// Deadlines near, far and none.
#include "server/deadline.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int64_t kNowNs = 5'000'000'000;

gpr_timespec In(int64_t seconds) {
  gpr_timespec deadline = gpr_now(GPR_CLOCK_REALTIME);
  deadline.tv_sec += seconds;
  return deadline;
}

TEST(Deadline, IsAsFarAwayOnOurClock) {
  for (int64_t seconds : {-3, 0, 60, 300 * 24 * 3600}) {
    const std::optional<int64_t> deadline_ns = DeadlineNs(In(seconds), kNowNs);
    ASSERT_TRUE(deadline_ns.has_value()) << seconds;
    EXPECT_NEAR(double(*deadline_ns), double(kNowNs + seconds * 1'000'000'000), 1e9) << seconds;
  }
}

TEST(Deadline, OfNoneOrOfManyYearsThereIsNone) {
  EXPECT_EQ(DeadlineNs(gpr_inf_future(GPR_CLOCK_REALTIME), kNowNs), std::nullopt);
  EXPECT_EQ(DeadlineNs(gpr_inf_future(GPR_CLOCK_MONOTONIC), kNowNs), std::nullopt);
  // The most that grpc-timeout can say, "99999999H", and what system_clock can hold no more.
  EXPECT_EQ(DeadlineNs(In(99'999'999LL * 3600), kNowNs), std::nullopt);
  EXPECT_EQ(DeadlineNs(In(293LL * 365 * 24 * 3600), kNowNs), std::nullopt);
}

TEST(Deadline, OneLongPastIsNow) {
  EXPECT_EQ(DeadlineNs(gpr_inf_past(GPR_CLOCK_REALTIME), kNowNs), kNowNs);
  EXPECT_EQ(DeadlineNs({.tv_sec = 0, .tv_nsec = 0, .clock_type = GPR_CLOCK_REALTIME}, kNowNs), kNowNs);
}

}  // namespace
}  // namespace sluice
