// The model checker itself: textbook cases that are right, and the same with one thing missing.
#include "tests/base/interleavings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::interleavings {
namespace {

using Order = std::memory_order;

template <class P, class... Args>
Result RunAll(Options options, Args... args) {
  return Explore([=] { return std::make_unique<P>(args...); }, options);
}

// One thread hands data over by a flag.
class Handover : public Program {
 public:
  Handover(Order store, Order load) : store_(store), load_(load) {}
  int num_threads() const override { return 2; }
  void Thread(int thread) override {
    if (thread == 0) {
      data_.Set(1);
      flag_.store(1, store_);
    } else if (flag_.load(load_) == 1) {
      Check(data_.Get() == 1, "the data is old");
    }
  }

 private:
  const Order store_, load_;
  Atomic<uint32_t> flag_{0};
  Plain<int> data_;
};

TEST(InterleavingsTest, HandoverNeedsReleaseAndAcquire) {
  EXPECT_EQ((RunAll<Handover>({}, Order::release, Order::acquire).failure), "");
  EXPECT_EQ((RunAll<Handover>({}, Order::seq_cst, Order::seq_cst).failure), "");
  EXPECT_THAT((RunAll<Handover>({}, Order::relaxed, Order::acquire).failure), testing::HasSubstr("races with a write"));
  EXPECT_THAT((RunAll<Handover>({}, Order::release, Order::relaxed).failure), testing::HasSubstr("races with a write"));
}

// Data may not be written again while another reads it.
class WriteAfterRelease : public Program {
 public:
  int num_threads() const override { return 2; }
  void Thread(int thread) override {
    if (thread == 0) {
      data_.Set(1);
      flag_.store(1, Order::release);
      data_.Set(2);
    } else if (flag_.load(Order::acquire) == 1) {
      data_.Get();
    }
  }

 private:
  Atomic<uint32_t> flag_{0};
  Plain<int> data_;
};

TEST(InterleavingsTest, WhatComesAfterAReleaseIsNotOrdered) {
  EXPECT_THAT(RunAll<WriteAfterRelease>({}).failure, testing::HasSubstr("races"));
}

// Each writes one and reads the other: at least one sees the other's.
class StoreBuffering : public Program {
 public:
  explicit StoreBuffering(Order order) : order_(order) {}
  int num_threads() const override { return 2; }
  void Thread(int thread) override {
    Atomic<uint32_t>& mine = thread == 0 ? a_ : b_;
    Atomic<uint32_t>& other = thread == 0 ? b_ : a_;
    mine.store(1, order_ == Order::seq_cst ? order_ : Order::release);
    seen_[thread] = other.load(order_ == Order::seq_cst ? order_ : Order::acquire);
  }
  void AtEnd() override { Check(seen_[0] + seen_[1] > 0, "neither saw the other"); }

 private:
  const Order order_;
  Atomic<uint32_t> a_{0}, b_{0};
  uint32_t seen_[2] = {0, 0};
};

TEST(InterleavingsTest, StoreBufferingNeedsSequentialConsistency) {
  EXPECT_EQ(RunAll<StoreBuffering>({}, Order::seq_cst).failure, "");
  EXPECT_THAT(RunAll<StoreBuffering>({}, Order::acq_rel).failure, testing::HasSubstr("neither saw the other"));
  EXPECT_EQ(RunAll<StoreBuffering>({.weak = false}, Order::acq_rel).failure, "") << "plain interleavings cannot show it";
}

// Two counts of one, by two threads that add.
class Counter : public Program {
 public:
  explicit Counter(bool atomically) : atomically_(atomically) {}
  int num_threads() const override { return 2; }
  void Thread(int) override {
    if (atomically_) {
      count_.fetch_add(1, Order::relaxed);
    } else {
      count_.store(count_.load() + 1);
    }
  }
  void AtEnd() override { Check(count_.load() == 2, "a count is lost"); }

 private:
  const bool atomically_;
  Atomic<uint32_t> count_{0};
};

TEST(InterleavingsTest, LostUpdatesAreFound) {
  EXPECT_EQ(RunAll<Counter>({}, true).failure, "");
  EXPECT_THAT(RunAll<Counter>({}, false).failure, testing::HasSubstr("a count is lost"));
}

// The last of three to count reads what the others wrote: a release sequence.
class LastOne : public Program {
 public:
  explicit LastOne(Order order) : order_(order) {}
  int num_threads() const override { return 3; }
  void Thread(int thread) override {
    parts_[thread].Set(thread + 1);
    if (count_.fetch_add(1, order_) != 2) return;
    int sum = 0;
    for (const Plain<int>& part : parts_) sum += part.Get();
    Check(sum == 6, "a part is old");
  }

 private:
  const Order order_;
  Atomic<uint32_t> count_{0};
  Plain<int> parts_[3];
};

TEST(InterleavingsTest, LastToCountSeesAllWhenCountsAreOrdered) {
  EXPECT_EQ(RunAll<LastOne>({}, Order::acq_rel).failure, "");
  EXPECT_NE(RunAll<LastOne>({}, Order::release).failure, "");
  EXPECT_NE(RunAll<LastOne>({}, Order::acquire).failure, "");
}

// One sleeps until the other has set a flag.
class Sleeper : public Program {
 public:
  Sleeper(bool notifies, bool rechecks) : notifies_(notifies), rechecks_(rechecks) {}
  int num_threads() const override { return 2; }
  void Thread(int thread) override {
    if (thread == 0) {
      flag_.store(1);
      if (notifies_) wakes_.fetch_add(1), wakes_.notify_all();
      return;
    }
    if (!rechecks_) {
      if (flag_.load() == 0) wakes_.wait(wakes_.load());
      return;
    }
    for (;;) {
      const uint32_t wakes = wakes_.load();
      if (flag_.load() == 1) return;
      wakes_.wait(wakes);
    }
  }

 private:
  const bool notifies_, rechecks_;
  Atomic<uint32_t> flag_{0}, wakes_{0};
};

TEST(InterleavingsTest, LostWakeUpsAreFound) {
  EXPECT_EQ(RunAll<Sleeper>({}, true, true).failure, "");
  EXPECT_THAT(RunAll<Sleeper>({}, false, true).failure, testing::HasSubstr("threads wait for ever"));
  EXPECT_THAT(RunAll<Sleeper>({}, true, false).failure, testing::HasSubstr("threads wait for ever"));
}

class Spinner : public Program {
 public:
  int num_threads() const override { return 2; }
  void Thread(int thread) override {
    while (thread == 0 && flag_.load() == 0) flag_.fetch_add(0);
  }

 private:
  Atomic<uint32_t> flag_{0};
};

TEST(InterleavingsTest, EndlessExecutionsAreFound) {
  EXPECT_THAT(RunAll<Spinner>({}).failure, testing::HasSubstr("does not end"));
}

// All orders of n independent operations of three threads: each state once.
class Independent : public Program {
 public:
  int num_threads() const override { return 3; }
  void Thread(int thread) override {
    for (int i = 0; i < 4; ++i) cells_[thread].fetch_add(1);
  }

 private:
  Atomic<uint32_t> cells_[3] = {0, 0, 0};
};

TEST(InterleavingsTest, CountsEachStateOnce) {
  const Result result = RunAll<Independent>({});
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.num_states, 5 * 5 * 5 - 1);  // how far each has come; where all have ended nothing is left to do
}

}  // namespace
}  // namespace sluice::interleavings
