#include "engine/base/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sanitized.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

constexpr int kManyRegions = kSanitized ? 20'000 : 200'000;  // races show in a few thousand

TEST(ThreadPoolTest, RunsEveryChunkOnceWithMoreThreadsThanCores) {
  for (int spin_us : {0, 2}) {
    ThreadPool pool(5, microseconds(spin_us));
    for (int region = 0; region < kManyRegions / 2; ++region) {
      const uint32_t n = 1 + region % 9;
      std::atomic<uint32_t> count{0}, sum{0};
      pool.ParallelFor(n, [&](uint32_t chunk, int) {
        count.fetch_add(1, std::memory_order_relaxed);
        sum.fetch_add(chunk, std::memory_order_relaxed);
      });
      ASSERT_EQ(count.load(), n) << "region " << region;
      ASSERT_EQ(sum.load(), n * (n - 1) / 2) << "region " << region;
    }
  }
}

TEST(ThreadPoolTest, WritesOfChunksAreVisibleToTheCallerWithoutFurtherSynchronisation) {
  ThreadPool pool(3);
  std::vector<int> owner(1000);
  for (int region = 1; region <= 200; ++region) {
    pool.ParallelFor(1000, [&](uint32_t chunk, int) { owner[chunk] += region; });
    for (int value : owner) ASSERT_EQ(value, region * (region + 1) / 2);
  }
}

TEST(ThreadPoolTest, WritesOfTheCallerBeforeARegionAreVisibleInIt) {
  ThreadPool pool(4, microseconds(1));
  int plain = 0;
  for (int region = 0; region < 5000; ++region) {
    plain = region;
    std::atomic<int> wrong{0};
    pool.ParallelFor(8, [&](uint32_t, int) { wrong += plain != region; });
    ASSERT_EQ(wrong.load(), 0);
  }
}

TEST(ThreadPoolTest, WorkerNumbersAreInRangeAndNeverShared) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  std::atomic<int> wrong{0};
  for (int region = 0; region < 200; ++region) {
    pool.ParallelFor(64, [&](uint32_t, int worker) {
      if (worker < 0 || worker >= 4) {
        ++wrong;
        return;
      }
      wrong += busy[worker].exchange(1);
      for (int i = 0; i < 200; ++i) asm volatile("" ::: "memory");
      busy[worker].store(0);
    });
  }
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ThreadPoolTest, OneThreadRunsChunksInOrderOnTheCaller) {
  ThreadPool pool(1);
  EXPECT_EQ(pool.num_threads(), 1);
  std::vector<uint32_t> order;
  pool.ParallelFor(5, [&](uint32_t chunk, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(chunk);
  });
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPoolTest, NoChunksIsNoCall) {
  ThreadPool pool(2);
  pool.ParallelFor(0, [](uint32_t, int) { FAIL(); });
}

TEST(ThreadPoolTest, OthersTakeOverAStuckWorkersRange) {
  ThreadPool pool(2);
  // Chunk 0 belongs to worker 0 and waits until all other chunks have run, half of which started out as worker 0's.
  std::atomic<uint32_t> others{0};
  pool.ParallelFor(100, [&](uint32_t chunk, int) {
    if (chunk != 0) {
      ++others;
      return;
    }
    while (others.load() != 99) std::this_thread::yield();
  });
  EXPECT_EQ(others.load(), 99u);
}

TEST(ThreadPoolTest, WorkersWakeAfterSleeping) {
  ThreadPool pool(3, microseconds(0));
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> count{0};
    pool.ParallelFor(16, [&](uint32_t, int) { ++count; });
    ASSERT_EQ(count.load(), 16);
  }
}

TEST(ThreadPoolTest, TwoPoolsInOneProcessWorkAtTheSameTime) {
  ThreadPool a(3), b(2);
  std::atomic<int> count{0};
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) b.ParallelFor(7, [&](uint32_t, int) { ++count; });
  });
  for (int i = 0; i < 500; ++i) a.ParallelFor(5, [&](uint32_t, int) { ++count; });
  other.join();
  EXPECT_EQ(count.load(), 500 * 12);
}

TEST(ThreadPoolTest, RegionsNestAcrossPools) {
  ThreadPool outer(2);
  std::vector<std::unique_ptr<ThreadPool>> inner;
  for (int i = 0; i < 2; ++i) inner.push_back(std::make_unique<ThreadPool>(2));
  std::atomic<int> count{0};
  outer.ParallelFor(10, [&](uint32_t, int worker) { inner[worker]->ParallelFor(4, [&](uint32_t, int) { ++count; }); });
  EXPECT_EQ(count.load(), 40);
}

TEST(ThreadPoolTest, PoolsComeAndGo) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(1 + i % 6, microseconds(i % 3 * 20));
    std::atomic<int> count{0};
    for (int j = 0; j < i % 4; ++j) pool.ParallelFor(3, [&](uint32_t, int) { ++count; });
    ASSERT_EQ(count.load(), i % 4 * 3);
  }
}

TEST(ThreadPoolTest, PrefetchHintsOfAnySizeAreHarmless) {
  ThreadPool pool(3);
  const std::vector<uint8_t> weights(100);
  for (size_t bytes : {0u, 1u, 100u}) {
    std::atomic<int> count{0};
    pool.ParallelFor(
        6, [&](uint32_t, int) { ++count; }, std::span<const uint8_t>(weights.data(), bytes));
    EXPECT_EQ(count.load(), 6);
  }
}

TEST(ThreadPoolTest, RunsMoreChunksThanOneRegionHolds) {
  ThreadPool pool(2);
  constexpr uint32_t kChunks = (1u << 24) + 1000;
  std::array<uint64_t, 2> count{}, sum{};
  pool.ParallelFor(kChunks, [&](uint32_t chunk, int worker) {
    ++count[static_cast<size_t>(worker)];
    sum[static_cast<size_t>(worker)] += chunk;
  });
  EXPECT_EQ(count[0] + count[1], kChunks);
  EXPECT_EQ(sum[0] + sum[1], uint64_t{kChunks} * (kChunks - 1) / 2);
}

TEST(ThreadPoolTest, DescribesWhereWorkersStand) {
  ThreadPool pool(2);
  std::string during;
  pool.ParallelFor(6, [&](uint32_t chunk, int worker) {
    if (chunk == 0) during = absl::StrCat(worker, " ", pool.Describe());
  });
  const std::string worker = during.substr(0, 1);
  EXPECT_THAT(during, testing::HasSubstr("region 1: 6 of 6 chunks not done")) << during;
  EXPECT_THAT(during, testing::HasSubstr(absl::StrCat("worker ", worker, " is in chunk 0"))) << during;
  EXPECT_THAT(pool.Describe(), testing::HasSubstr("worker 0 is outside (0 left of its share)"));
}

TEST(ThreadPoolTest, LongChunksAllRun) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  for (int region = 0; region < 10; ++region) {
    pool.ParallelFor(6, [&](uint32_t, int) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
      while (std::chrono::steady_clock::now() < end) {
      }
      ++count;
    });
  }
  EXPECT_EQ(count.load(), 60);
}

}  // namespace
}  // namespace sluice
