#include "engine/base/huge_page_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace sluice {
namespace {

TEST(HugePageArenaTest, PiecesAreZeroAlignedAndApart) {
  HugePageArena arena(size_t{2} << 20);
  std::vector<std::shared_ptr<uint8_t>> pieces;
  const size_t sizes[] = {1, 63, 64, 65, 4096, 1'000'000, 1'500'000, size_t{3} << 20};
  for (size_t size : sizes) {
    std::shared_ptr<uint8_t> piece = arena.Allocate(size);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.get()) % 64, 0u);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(piece.get()[i], 0);
    std::memset(piece.get(), static_cast<int>(pieces.size() + 1), size);
    pieces.push_back(std::move(piece));
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    for (size_t i = 0; i < sizes[p]; ++i) ASSERT_EQ(pieces[p].get()[i], p + 1);
  }
}

TEST(HugePageArenaTest, SmallPiecesShareAChunk) {
  HugePageArena arena(size_t{2} << 20);
  const auto a = arena.Allocate(100), b = arena.Allocate(100);
  EXPECT_EQ(b.get() - a.get(), 128);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.get()) % (size_t{2} << 20), 0u);
}

TEST(HugePageArenaTest, PiecesOutliveTheArena) {
  std::shared_ptr<uint8_t> piece;
  {
    HugePageArena arena;
    piece = arena.Allocate(1000);
  }
  std::memset(piece.get(), 7, 1000);
  EXPECT_EQ(piece.get()[999], 7);
}

TEST(HugePageArenaTest, TooMuchIsNullptr) {
  HugePageArena arena;
  EXPECT_EQ(arena.Allocate(std::numeric_limits<size_t>::max()), nullptr);
  EXPECT_EQ(arena.Allocate(std::numeric_limits<size_t>::max() - 100), nullptr);
  EXPECT_EQ(arena.Allocate(size_t{1} << 60), nullptr);
}

TEST(HugePageArenaTest, NothingIsAPiece) {
  HugePageArena arena;
  EXPECT_NE(arena.Allocate(0), nullptr);
}

}  // namespace
}  // namespace sluice
