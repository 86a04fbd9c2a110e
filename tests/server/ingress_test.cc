// Who comes first, who never waits for whom, and who finds room before the engine.
#include "server/calls/ingress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "engine/retry_after.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

constexpr int64_t kMs = 1'000'000;

class FakeClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

// A task that stands until it is let go.
class Gate {
 public:
  std::function<void()> Task() {
    return [this] {
      MutexLock lock(&mutex_);
      ++num_inside_;
      changed_.NotifyAll();
      while (!open_) changed_.Wait(&mutex_);
    };
  }
  void WaitUntilInside(int count) {
    MutexLock lock(&mutex_);
    while (num_inside_ < count) changed_.Wait(&mutex_);
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int num_inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

class IngressTest : public ::testing::Test {
 protected:
  // Appends its name to what has run.
  std::function<void()> Named(char name) {
    return [this, name] {
      MutexLock lock(&mutex_);
      order_.push_back(name);
    };
  }
  std::string order() {
    MutexLock lock(&mutex_);
    return order_;
  }

  FakeClock clock_;
  Mutex mutex_;
  std::string order_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(IngressTest, TheShortComeBeforeTheLongThatArrivedEarlier) {
  Ingress ingress(1, 100, 100 << 20, clock_);
  Gate gate;
  ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, gate.Task()).ok());
  gate.WaitUntilInside(1);
  ASSERT_TRUE(ingress.Post({.peer = "a", .bytes = 4 << 20}, Named('L')).ok());
  ASSERT_TRUE(ingress.Post({.peer = "a", .bytes = 1 << 20}, Named('l')).ok());
  ASSERT_TRUE(ingress.Post({.peer = "a", .bytes = 100}, Named('s')).ok());
  ASSERT_TRUE(ingress.Post({.peer = "b", .bytes = 100}, Named('t')).ok());
  gate.Open();
  ingress.Stop();
  EXPECT_EQ(order(), "stlL");
}

TEST_F(IngressTest, ADueLongTaskPrecedesLaterArrivals) {
  Ingress ingress(1, 100, 100 << 20, clock_);
  Gate gate;
  ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, gate.Task()).ok());
  gate.WaitUntilInside(1);
  ASSERT_TRUE(ingress.Post({.peer = "a", .bytes = 1 << 20}, Named('L')).ok());
  clock_.Advance(900 * kMs);
  ASSERT_TRUE(ingress.Post({.peer = "b", .bytes = 100}, Named('s')).ok());
  clock_.Advance(200 * kMs);
  ASSERT_TRUE(ingress.Post({.peer = "b", .bytes = 100}, Named('t')).ok());
  gate.Open();
  ingress.Stop();
  EXPECT_EQ(order(), "sLt");
}

TEST_F(IngressTest, LongTasksNeverTakeTheLastThread) {
  Ingress ingress(2, 100, 100 << 20, clock_);
  Gate gate;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(ingress.Post({.peer = "a", .bytes = 1 << 20}, gate.Task()).ok());
  // A few words for a template may take as long.
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(ingress.Post({.peer = std::to_string(i), .bytes = 10, .by_bytes_alone = false}, gate.Task()).ok());
  }
  gate.WaitUntilInside(1);
  std::atomic<bool> ran{false};
  ASSERT_TRUE(ingress.Post({.peer = "b", .bytes = 100}, [&ran] { ran = true; }).ok());
  while (!ran) std::this_thread::yield();
  gate.Open();
  ingress.Stop();
}

TEST_F(IngressTest, AClientThatCostsMuchComesAfterOneThatCostsLittle) {
  Ingress ingress(1, 100, 100 << 20, clock_);
  Gate gate;
  std::atomic<bool> ran{false};
  const auto costly = [&] {
    clock_.Advance(2000 * kMs);
    ran = true;
  };
  ASSERT_TRUE(ingress.Post({.peer = "costly", .bytes = 10}, costly).ok());
  while (!ran) std::this_thread::yield();
  ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, gate.Task()).ok());
  gate.WaitUntilInside(1);
  ASSERT_TRUE(ingress.Post({.peer = "costly", .bytes = 10}, Named('c')).ok());
  ASSERT_TRUE(ingress.Post({.peer = "other", .bytes = 1000}, Named('o')).ok());
  clock_.Advance(3000 * kMs);  // forgotten
  ASSERT_TRUE(ingress.Post({.peer = "costly", .bytes = 10}, Named('d')).ok());
  gate.Open();
  ingress.Stop();
  EXPECT_EQ(order(), "ocd");
}

TEST_F(IngressTest, HoweverMuchOneClientSendsOthersFindRoom) {
  for (const int64_t bytes : {int64_t{1}, int64_t{1} << 20}) {  // too many, too large
    Ingress ingress(1, 16, 16 << 20, clock_);
    Gate gate;
    ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, gate.Task()).ok());
    gate.WaitUntilInside(1);
    int taken = 0;
    for (int i = 0; i < 100; ++i) taken += ingress.Post({.peer = "flood", .bytes = bytes}, [] {}).ok();
    EXPECT_EQ(taken, 8) << bytes;
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ingress.Post({.peer = "b", .bytes = bytes}, [] {}).ok()) << bytes;
    const absl::Status refused = ingress.Post({.peer = "flood", .bytes = bytes}, [] {});
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(refused), kReasonQueueFull);
    gate.Open();
  }
}

TEST_F(IngressTest, ARefusalSaysWhenThereWillBeRoomByThePaceOfTheThreads) {
  Ingress ingress(1, 100, 100 << 20, clock_);
  Gate first;
  ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, first.Task()).ok());
  first.WaitUntilInside(1);
  // Half a second each; the last of the ten stands.
  Gate second;
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, [&] { clock_.Advance(500 * kMs); }).ok());
  ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, second.Task()).ok());
  while (ingress.Post({.peer = "a", .bytes = 1}, [] {}).ok()) {
  }
  EXPECT_EQ(RetryAfterOf(ingress.Post({.peer = "a", .bytes = 1}, [] {})), absl::nullopt) << "no pace is known yet";
  first.Open();
  second.WaitUntilInside(1);
  int taken = 0;
  while (ingress.Post({.peer = "a", .bytes = 1}, [] {}).ok()) ++taken;
  EXPECT_EQ(taken, 5);
  // 50 of 50 wait, and one that goes is enough.
  EXPECT_EQ(RetryAfterOf(ingress.Post({.peer = "a", .bytes = 1}, [] {})), absl::Milliseconds(500));
  // What is as large as 40 of those that wait.
  EXPECT_EQ(RetryAfterOf(ingress.Post({.peer = "b", .bytes = (100 << 20) - 10}, [] {})), absl::Milliseconds(20'000));
  second.Open();
}

TEST_F(IngressTest, OneOfAnySizeIsTakenWhenNothingWaits) {
  Ingress ingress(1, 16, 1000, clock_);
  EXPECT_TRUE(ingress.Post({.peer = "a", .bytes = 1 << 30}, Named('a')).ok());
  ingress.Stop();
  EXPECT_EQ(order(), "a");
  EXPECT_EQ(ingress.Post({.peer = "a", .bytes = 1}, [] {}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(IngressTest, StopRunsAllThatWaits) {
  Ingress ingress(2, 1000, 1000 << 20, clock_);
  Gate gate;
  std::atomic<int> count{0};
  ASSERT_TRUE(ingress.Post({.peer = "z", .bytes = 1}, gate.Task()).ok());
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(ingress.Post({.peer = "a", .bytes = i % 2 == 0 ? 1 : 1 << 20}, [&count] { ++count; }).ok());
  }
  gate.Open();
  ingress.Stop();
  EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace sluice
