// Refusals of what would wait too long, by the pace of the queue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/error_reason.h"
#include "engine/retry_after.h"
#include "tests/scheduler/engine_harness.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using testing::EngineTest;
using testing::PromptOf;
using testing::SmallOptions;
using testing::SubmitOne;

constexpr int64_t kSecond = 1'000'000'000;

// One sequence at a time, each of which takes one step.
class QueueTimeTest : public EngineTest {
 protected:
  void StartSlow(int32_t max_queue_seconds = 60) {
    EngineOptions options = SmallOptions();
    options.max_num_seqs = 1;
    options.max_queued_requests = 20;
    options.max_queue_seconds = max_queue_seconds;
    StartGated(options);
    SubmitOne(engine_.get(), PromptOf(5, 1));
    gate_.WaitForStep(++step_);
  }
  // Ends the step after so many seconds, and waits for the next to begin.
  void PassStep(int64_t seconds) {
    now_ns_ += seconds * kSecond;
    clock_.Set(now_ns_);
    gate_.LetOnePass();
    gate_.WaitForStep(++step_);
  }
  absl::Status SubmitStatus() { return engine_->Submit({PromptOf(5, 1)}).status(); }

  int step_ = 0;
  int64_t now_ns_ = 1000;
};

TEST_F(QueueTimeTest, RefusesALongWaitWithARetryDelay) {
  StartSlow();
  for (int i = 0; i < 9; ++i) EXPECT_EQ(SubmitStatus(), absl::OkStatus());
  PassStep(20);
  EXPECT_EQ(engine_->Stats().queue_drain.admissions_per_second, 0);
  EXPECT_EQ(SubmitStatus(), absl::OkStatus()) << "no pace is known yet";
  PassStep(20);
  EXPECT_NEAR(engine_->Stats().queue_drain.admissions_per_second, 1.0 / 20, 1e-9);
  EXPECT_EQ(engine_->Stats().num_waiting, 8);
  const absl::Status status = SubmitStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), kReasonQueueWaitTooLong);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wait for about 3m, longer than max_queue_seconds (60)"));
  // Six of them must have gone: with two before it the next one waits for a minute.
  EXPECT_EQ(RetryAfterOf(status), absl::Seconds(120));
  for (int i = 0; i < 5; ++i) PassStep(20);
  EXPECT_EQ(RetryAfterOf(SubmitStatus()), absl::Seconds(20));
  PassStep(20);
  EXPECT_EQ(SubmitStatus(), absl::OkStatus());
  EXPECT_EQ(engine_->Stats().num_waiting, 3);
}

TEST_F(QueueTimeTest, AnEmptyQueueTakesAnyCall) {
  StartSlow();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(SubmitStatus(), absl::OkStatus());
  PassStep(1000);
  PassStep(1000);
  EXPECT_EQ(ReasonOf(SubmitStatus()), kReasonQueueWaitTooLong);
  PassStep(1000);
  EXPECT_EQ(engine_->Stats().num_waiting, 0);
  EXPECT_EQ(SubmitStatus(), absl::OkStatus());
  EXPECT_EQ(ReasonOf(SubmitStatus()), kReasonQueueWaitTooLong);
}

TEST_F(QueueTimeTest, WithoutALimitNobodyIsRefusedForTheTime) {
  StartSlow(/*max_queue_seconds=*/0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(SubmitStatus(), absl::OkStatus());
  PassStep(100000);
  PassStep(100000);
  EXPECT_GT(engine_->Stats().queue_drain.admissions_per_second, 0);
  EXPECT_EQ(SubmitStatus(), absl::OkStatus());
}

TEST_F(QueueTimeTest, AFullQueueTellsWhenItWillHaveRoom) {
  StartSlow(/*max_queue_seconds=*/0);
  while (SubmitStatus().ok()) {
  }
  EXPECT_EQ(engine_->Stats().num_waiting, 20);
  EXPECT_EQ(RetryAfterOf(SubmitStatus()), absl::nullopt);
  PassStep(7);
  EXPECT_EQ(SubmitStatus(), absl::OkStatus());
  PassStep(7);
  EXPECT_EQ(SubmitStatus(), absl::OkStatus());
  EXPECT_EQ(ReasonOf(SubmitStatus()), kReasonQueueFull);
  EXPECT_EQ(RetryAfterOf(SubmitStatus()), absl::Seconds(7));
  const std::vector<Request> three(3, PromptOf(5, 1));
  EXPECT_EQ(RetryAfterOf(engine_->Submit(three).status()), absl::Seconds(21));
}

TEST_F(QueueTimeTest, WaitingCallsThatAreCancelledCountForTheWait) {
  StartSlow();
  std::vector<SequenceId> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(SubmitOne(engine_.get(), PromptOf(5, 1)));
  for (int round = 0; round < 4; ++round) {
    PassStep(20);
    for (int i = 0; i < 2; ++i, ids.pop_back()) engine_->Cancel(ids.back());
  }
  EXPECT_NEAR(engine_->Stats().queue_drain.admissions_per_second, 1.0 / 20, 1e-9);
  EXPECT_GT(engine_->Stats().queue_drain.giving_up_per_second, 0.001);
}

}  // namespace
}  // namespace sluice
