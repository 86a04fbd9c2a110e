// Parts that workers of a pool make and the last of them puts together, in two regions, through every order of events.
#include "engine/base/last_arrival.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "engine/base/region_board.h"
#include "tests/base/interleavings.h"

namespace sluice {
namespace {

using interleavings::Check;
using interleavings::Explore;
using interleavings::Plain;

constexpr int kNumWorkers = 2, kNumParts = 2, kNumRegions = 2;

class Program : public interleavings::Program {
 public:
  int num_threads() const override { return kNumWorkers; }

  void Thread(int worker) override {
    if (worker == 0) return Post();
    for (auto region = board_.first();;) {
      region = board_.WaitForRegion(region, {});
      if (region.is_end()) return;
      Run(worker, region);
      interleavings::Forget(region.number());
    }
  }

 private:
  using Board = RegionBoard<int, interleavings::Atomics>;

  void Post() {
    for (int r = 1; r <= kNumRegions; ++r) {
      const auto region = board_.Post(kNumParts, r);
      Run(0, region);
      board_.WaitUntilDone({});
      interleavings::Forget(region.number());
      Check(whole_.Get() == r * kNumParts, "the parts were not put together");
    }
    board_.PostEnd();
  }

  void Run(int worker, Board::Region region) {
    board_.RunChunks(static_cast<uint32_t>(worker), region, [&](int r, uint32_t chunk) {
      parts_[chunk].Set(r);
      if (!arrivals_.Arrive(kNumParts)) return;
      int sum = 0;
      for (const Plain<int>& part : parts_) sum += part.Get();
      Check(sum == r * kNumParts, "a part is old");
      whole_.Set(sum);
    });
  }

  Board board_{kNumWorkers};
  LastArrival<interleavings::Atomics> arrivals_;
  Plain<int> parts_[kNumParts], whole_;
};

TEST(LastArrivalTest, OneWorkerSeesAllPartsInEveryOrder) {
  const auto result = Explore([] { return std::make_unique<Program>(); });
  EXPECT_EQ(result.failure, "");
  EXPECT_GT(result.num_states, 1000);
}

// The parts' counter alone, by threads that nothing else orders.
class CounterProgram : public interleavings::Program {
 public:
  int num_threads() const override { return 3; }
  void Thread(int thread) override {
    parts_[thread].Set(1);
    if (!arrivals_.Arrive(3)) return;
    Check(++num_last_ == 1, "two were last");
    for (const Plain<int>& part : parts_) Check(part.Get() == 1, "a part is old");
  }
  void AtEnd() override { Check(num_last_ == 1, "nobody was last"); }

 private:
  LastArrival<interleavings::Atomics> arrivals_;
  Plain<int> parts_[3];
  int num_last_ = 0;
};

TEST(LastArrivalTest, NeedsItsMemoryOrder) {
  const auto make = [] { return std::make_unique<CounterProgram>(); };
  const auto result = Explore(make);
  EXPECT_EQ(result.failure, "");
  ASSERT_EQ(result.ordered_lines.size(), 1u);
  EXPECT_THAT(Explore(make, {.relaxed_line = result.ordered_lines[0]}).failure, testing::HasSubstr("races with a write"));
}

}  // namespace
}  // namespace sluice
