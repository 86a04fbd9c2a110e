// What is held for clients is bounded for each connection and in all, and who holds most goes.
#include "server/calls/output_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(OutputBudget, OverAConnectionsBudgetItsLargestCallGoes) {
  OutputBudget budget({.connection_bytes = 100, .total_bytes = 1000});
  int small_cut = 0, large_cut = 0, other_cut = 0;
  auto small = budget.Open("a", [&] { ++small_cut; });
  auto large = budget.Open("a", [&] { ++large_cut; });
  auto other = budget.Open("b", [&] { ++other_cut; });
  EXPECT_TRUE(other->Add(100));
  EXPECT_TRUE(large->Add(60));
  EXPECT_TRUE(small->Add(40));
  EXPECT_EQ(budget.bytes(), 200);
  EXPECT_TRUE(small->Add(1)) << "the other call of the connection holds more";
  EXPECT_EQ(large_cut, 1);
  EXPECT_FALSE(large->Add(1)) << "it has been cut";
  EXPECT_EQ(budget.bytes(), 141);
  EXPECT_FALSE(small->Add(60)) << "now it is the largest itself";
  EXPECT_EQ(budget.bytes(), 100);
  EXPECT_EQ(small_cut, 0) << "it was told by the result";
  EXPECT_EQ(other_cut, 0);
  EXPECT_EQ(budget.num_cut(), 2);
}

TEST(OutputBudget, OverTheTotalTheLargestConnectionPays) {
  OutputBudget budget({.connection_bytes = 100, .total_bytes = 250});
  std::vector<std::unique_ptr<OutputBudget::Holding>> greedy;
  int cut = 0;
  for (const char* peer : {"a", "b"}) {
    greedy.push_back(budget.Open(peer, [&] { ++cut; }));
    EXPECT_TRUE(greedy.back()->Add(100));
  }
  auto modest = budget.Open("c", [] { FAIL() << "holds least"; });
  EXPECT_TRUE(modest->Add(40));
  EXPECT_EQ(cut, 0);
  EXPECT_TRUE(modest->Add(20));
  EXPECT_EQ(cut, 1);
  EXPECT_EQ(budget.bytes(), 160);
}

TEST(OutputBudget, WhatIsReadOrGoneCountsNoMore) {
  OutputBudget budget({.connection_bytes = 100, .total_bytes = 100});
  {
    auto holding = budget.Open("a", [] {});
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(holding->Add(100));
      holding->Remove(100);
    }
    EXPECT_TRUE(holding->Add(70));
    holding->Remove(1000);
    EXPECT_EQ(budget.bytes(), 0) << "no more than was there";
    EXPECT_TRUE(holding->Add(70));
  }
  EXPECT_EQ(budget.bytes(), 0);
  EXPECT_TRUE(budget.Open("b", [] {})->Add(100));
}

TEST(OutputBudget, ManyThreadsKeepItRight) {
  OutputBudget budget({.connection_bytes = 2000, .total_bytes = 5000});
  std::vector<std::thread> threads;
  std::atomic<int64_t> num_cut{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int call = 0; call < 300; ++call) {
        auto holding = budget.Open(std::to_string(random() % 5), [&] { ++num_cut; });
        for (int i = 0; i < 20; ++i) {
          if (!holding->Add(int64_t(random() % 200))) break;
          if (random() % 2 == 0) holding->Remove(int64_t(random() % 200));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.bytes(), 0);
  EXPECT_GT(budget.num_cut(), 0);
  EXPECT_LE(num_cut, budget.num_cut());
}

}  // namespace
}  // namespace sluice
