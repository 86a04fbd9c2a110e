#include "server/memory_return.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "server/process_stats.h"

namespace sluice {
namespace {

constexpr size_t kMuch = MemoryReturn::kWorthwhileBytes, kBase = 100 << 20;

TEST(MemoryReturnTest, IsDueWhenMuchHasBeenFreeForAWhile) {
  MemoryReturn memory;
  EXPECT_FALSE(memory.Due(0, kBase));
  for (int look = 1; look < MemoryReturn::kLooks; ++look) EXPECT_FALSE(memory.Due(kMuch, kBase + kMuch));
  EXPECT_TRUE(memory.Due(kMuch, kBase + kMuch));
}

TEST(MemoryReturnTest, StartsAnewWhenTheMemoryIsUsedAgain) {
  MemoryReturn memory;
  EXPECT_FALSE(memory.Due(0, kBase));
  for (int round = 0; round < 5; ++round) {
    for (int look = 1; look < MemoryReturn::kLooks; ++look) EXPECT_FALSE(memory.Due(kMuch, kBase + kMuch));
    EXPECT_FALSE(memory.Due(kMuch - 1, kBase + kMuch));
  }
}

TEST(MemoryReturnTest, IsNotDueAgainBeforeTheProcessHasGrown) {
  MemoryReturn memory;
  memory.Due(0, kBase);
  for (int look = 0; look < MemoryReturn::kLooks; ++look) memory.Due(kMuch, kBase + kMuch);
  for (int look = 0; look < 10; ++look) EXPECT_FALSE(memory.Due(10 * kMuch, kBase)) << look;  // free, but not resident
  int looks = 1;
  while (!memory.Due(10 * kMuch, kBase + kMuch)) ASSERT_LT(++looks, 10);
  EXPECT_EQ(looks, MemoryReturn::kLooks);
}

TEST(MemoryReturnTest, AShrinkingProcessLowersWhatGrowthIsMeasuredFrom) {
  MemoryReturn memory;
  memory.Due(0, kBase + 3 * kMuch);
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(memory.Due(9 * kMuch, kBase)) << look;
  for (int look = 1; look < MemoryReturn::kLooks; ++look) EXPECT_FALSE(memory.Due(9 * kMuch, kBase + kMuch));
  EXPECT_TRUE(memory.Due(9 * kMuch, kBase + kMuch));
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(MemoryReturnTest, WhatAThreadHasFreedLeavesTheProcess) {
  constexpr size_t kPieces = 4096, kPieceBytes = 32 << 10;  // 128 MiB, each below what malloc maps by itself
  std::thread([] {
    std::vector<std::unique_ptr<char[]>> pieces(kPieces);
    for (auto& piece : pieces) {
      piece.reset(new char[kPieceBytes]);
      std::memset(piece.get(), 1, kPieceBytes);
    }
    auto last = std::move(pieces.back());  // pins the top of the heap
    pieces.clear();
    const size_t before = ResidentBytes();
    ASSERT_GE(FreeHeapBytes(), 100u << 20);
    ReturnFreeHeap();
    EXPECT_LE(ResidentBytes() + (100 << 20), before);
  }).join();
}
#endif

}  // namespace
}  // namespace sluice
