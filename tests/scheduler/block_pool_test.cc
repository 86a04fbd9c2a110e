#include "engine/scheduler/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace sluice {
namespace {

std::vector<int32_t> AllocateAll(BlockPool* pool) {
  std::vector<int32_t> blocks;
  while (pool->num_available() > 0) blocks.push_back(pool->Allocate());
  return blocks;
}

void ReleaseAll(BlockPool* pool, const std::vector<int32_t>& blocks) {
  for (int32_t block : blocks) pool->Release(block);
}

TEST(BlockPoolTest, HandsOutEveryBlockOnce) {
  BlockPool pool(7);
  const std::vector<int32_t> blocks = AllocateAll(&pool);
  EXPECT_EQ(std::set<int32_t>(blocks.begin(), blocks.end()), (std::set<int32_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(pool.num_live(), 7);
  EXPECT_EQ(pool.num_free(), 0);
  ReleaseAll(&pool, blocks);
  EXPECT_EQ(pool.num_live(), 0);
  EXPECT_EQ(pool.num_free(), 7);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, ReusesTheMostRecentlyFreedBlockFirst) {
  BlockPool pool(8);
  const int32_t a = pool.Allocate();
  const int32_t b = pool.Allocate();
  pool.Release(a);
  pool.Release(b);
  EXPECT_EQ(pool.Allocate(), b);
  EXPECT_EQ(pool.Allocate(), a);
  ReleaseAll(&pool, {a, b});
}

TEST(BlockPoolTest, ASharedBlockIsLiveUntilItsLastHolderGoes) {
  BlockPool pool(2);
  const int32_t block = pool.Allocate();
  pool.AddRef(block);
  pool.Release(block);
  EXPECT_EQ(pool.num_live(), 1);
  EXPECT_EQ(pool.ref_count(block), 1);
  pool.Release(block);
  EXPECT_EQ(pool.num_live(), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolTest, KeptContentsOutliveTheirHolderAndCanBeTakenUpAgain) {
  BlockPool pool(2);
  const int32_t block = pool.Allocate();
  pool.KeepContents(block);
  pool.Release(block);
  EXPECT_EQ(pool.num_live(), 0);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_available(), 2);
  pool.AddRef(block);
  EXPECT_EQ(pool.num_live(), 1);
  EXPECT_EQ(pool.num_cached(), 0);
  pool.Release(block);
  EXPECT_EQ(pool.num_cached(), 1) << "still kept after the second holder";
  pool.CheckInvariants();
}

TEST(BlockPoolTest, GivesCachedBlocksAwayLastAndTheLongestUnusedFirst) {
  BlockPool pool(4);
  const std::vector<int32_t> blocks = AllocateAll(&pool);
  pool.KeepContents(blocks[0]);
  pool.KeepContents(blocks[1]);
  pool.KeepContents(blocks[2]);
  ReleaseAll(&pool, {blocks[2], blocks[0], blocks[3], blocks[1]});
  pool.AddRef(blocks[2]);  // used again, hence the youngest of the cached ones
  pool.Release(blocks[2]);
  EXPECT_EQ(AllocateAll(&pool), (std::vector<int32_t>{blocks[3], blocks[0], blocks[1], blocks[2]}));
  ReleaseAll(&pool, blocks);
  EXPECT_EQ(pool.num_free(), 4) << "a block handed out anew has lost its contents";
}

TEST(BlockPoolTest, CountsAddUpUnderRandomUse) {
  std::mt19937 rng(1);
  BlockPool pool(50);
  std::vector<int32_t> holders;  // one entry per reference
  std::set<int32_t> cached;
  for (int i = 0; i < 20000; ++i) {
    const int op = int(rng() % 8);
    if (op < 3 && pool.num_available() > 0) {
      const int32_t block = pool.Allocate();
      cached.erase(block);
      EXPECT_EQ(pool.ref_count(block), 1);
      holders.push_back(block);
    } else if (op == 3 && !cached.empty()) {
      const int32_t block = *cached.begin();
      cached.erase(cached.begin());
      pool.AddRef(block);
      holders.push_back(block);
    } else if (op == 4 && !holders.empty()) {
      const int32_t block = holders[rng() % holders.size()];
      pool.AddRef(block);
      holders.push_back(block);
    } else if (!holders.empty()) {
      std::swap(holders[rng() % holders.size()], holders.back());
      const int32_t block = holders.back();
      holders.pop_back();
      if (op == 5) {
        pool.KeepContents(block);
        if (pool.ref_count(block) == 1) cached.insert(block);
      }
      const int32_t num_cached = pool.num_cached();
      pool.Release(block);
      if (pool.num_cached() > num_cached) cached.insert(block);
    }
    ASSERT_EQ(pool.num_live() + pool.num_cached() + pool.num_free(), pool.num_total());
    ASSERT_EQ(pool.num_live(), int32_t(std::set<int32_t>(holders.begin(), holders.end()).size()));
    ASSERT_EQ(pool.num_cached(), int32_t(cached.size()));
    if (i % 100 == 0) pool.CheckInvariants();
  }
  ReleaseAll(&pool, holders);
}

TEST(BlockTableTest, GrowsAllOrNothing) {
  BlockPool pool(4);
  BlockTable a(&pool);
  BlockTable b(&pool);
  EXPECT_TRUE(a.GrowTo(3));
  EXPECT_FALSE(b.GrowTo(2));
  EXPECT_EQ(b.size(), 0);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(b.GrowTo(1));
  EXPECT_TRUE(a.GrowTo(2)) << "long enough already";
  EXPECT_EQ(a.size(), 3);
}

TEST(BlockTableTest, GivesItsBlocksBackWhenItGoes) {
  BlockPool pool(4);
  {
    BlockTable table(&pool);
    ASSERT_TRUE(table.GrowTo(4));
    EXPECT_EQ(pool.num_live(), 4);
  }
  EXPECT_EQ(pool.num_live(), 0);
  pool.CheckInvariants();
}

TEST(BlockTableTest, ADroppedFrontBlockIsReusedThenReturned) {
  BlockPool pool(6);
  BlockTable table(&pool, /*rolls=*/true);
  ASSERT_TRUE(table.GrowTo(3));
  const std::vector<int32_t> blocks(table.blocks().begin(), table.blocks().end());
  table.DropFront(2, 4);
  EXPECT_THAT(table.blocks(), ::testing::ElementsAre(-1, -1, blocks[2], blocks[0]));
  EXPECT_EQ(table.num_dropped(), 2);
  EXPECT_EQ(table.num_held(), 2);
  EXPECT_EQ(pool.num_live(), 2);
  table.DropFront(2, 4);  // done already
  EXPECT_EQ(table.size(), 4);
  table.DropFront(4, 4);
  EXPECT_EQ(table.num_held(), 0);
  EXPECT_EQ(pool.num_live(), 0);
  EXPECT_TRUE(table.GrowTo(6));
  EXPECT_EQ(pool.num_live(), 2);
  table.Clear();
  EXPECT_EQ(table.size(), 0);
  EXPECT_EQ(table.num_dropped(), 0);
  EXPECT_EQ(pool.num_live(), 0);
  pool.CheckInvariants();
}

TEST(BlockTableTest, ABlockThatAnotherHoldsIsNotReusedInPlace) {
  BlockPool pool(6);
  BlockTable owner(&pool, /*rolls=*/true), reader(&pool, /*rolls=*/true);
  ASSERT_TRUE(owner.GrowTo(3));
  const std::vector<int32_t> blocks(owner.blocks().begin(), owner.blocks().end());
  for (int32_t entry = 0; entry < 2; ++entry) reader.Share(blocks[size_t(entry)]);
  pool.KeepContents(blocks[2]);
  EXPECT_EQ(pool.num_promised(), 2);
  EXPECT_EQ(pool.num_available(), 1) << "two of three are set aside for whoever drops them first";
  owner.DropFront(3, 6);
  EXPECT_THAT(owner.blocks(), ::testing::ElementsAre(-1, -1, -1, blocks[2] + 1, blocks[2] + 2, blocks[2] + 3))
      << "three others for them";
  EXPECT_EQ(pool.num_promised(), 0);
  owner.Truncate(3);
  EXPECT_THAT(reader.blocks(), ::testing::ElementsAre(blocks[0], blocks[1]));
  EXPECT_EQ(pool.num_live(), 2);
  EXPECT_EQ(pool.num_cached(), 1) << "what was kept outlives its holders";
  reader.DropFront(1, 3);
  EXPECT_THAT(reader.blocks(), ::testing::ElementsAre(-1, blocks[1], blocks[0])) << "it is the last holder";
  pool.CheckInvariants();
}

TEST(BlockTableTest, ReplacesWhatItDropsByEvictionWhereNothingIsFree) {
  std::vector<int32_t> forgotten;
  BlockPool pool(2, [&](int32_t block) { forgotten.push_back(block); });
  BlockTable table(&pool, /*rolls=*/true);
  ASSERT_TRUE(table.GrowTo(2));
  const std::vector<int32_t> blocks(table.blocks().begin(), table.blocks().end());
  pool.KeepContents(blocks[0]);
  table.DropFront(1, 3);
  EXPECT_THAT(table.blocks(), ::testing::ElementsAre(-1, blocks[1], blocks[0])) << "the only one that there is";
  EXPECT_THAT(forgotten, ::testing::ElementsAre(blocks[0]));
  table.Clear();
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockTableTest, AdoptsAPrefixInPlaceOfItsOwnBlocks) {
  BlockPool pool(12);
  BlockTable other(&pool), table(&pool);
  ASSERT_TRUE(other.GrowTo(5));
  ASSERT_TRUE(table.GrowTo(3));
  const std::vector<int32_t> theirs(other.blocks().begin(), other.blocks().end());
  const std::vector<int32_t> own(table.blocks().begin(), table.blocks().end());
  table.Adopt(1, absl::MakeConstSpan(theirs).subspan(1, 3), 0);
  EXPECT_THAT(table.blocks(), ::testing::ElementsAre(own[0], theirs[1], theirs[2], theirs[3]));
  EXPECT_EQ(pool.num_live(), 5 + 1);
  EXPECT_EQ(pool.num_promised(), 0) << "it does not roll";
  other.Clear();
  EXPECT_EQ(pool.ref_count(theirs[2]), 1);
  pool.CheckInvariants();
}

TEST(BlockTableTest, AdoptsOnlyWhatIsInSight) {
  BlockPool pool(12);
  BlockTable other(&pool, /*rolls=*/true), table(&pool, /*rolls=*/true), fresh(&pool, /*rolls=*/true);
  ASSERT_TRUE(other.GrowTo(4));
  const std::vector<int32_t> theirs(other.blocks().begin(), other.blocks().end());
  ASSERT_TRUE(table.GrowTo(5));
  const std::vector<int32_t> own(table.blocks().begin(), table.blocks().end());
  table.Adopt(1, std::vector<int32_t>{-1, theirs[2], theirs[3]}, 2);
  EXPECT_THAT(table.blocks(), ::testing::ElementsAre(-1, -1, theirs[2], theirs[3], own[4]));
  EXPECT_EQ(table.num_dropped(), 2);
  EXPECT_EQ(pool.num_promised(), 2);
  EXPECT_EQ(pool.num_live(), 4 + 1);
  fresh.Adopt(0, std::vector<int32_t>{-1, -1, -1, theirs[3]}, 3);
  EXPECT_THAT(fresh.blocks(), ::testing::ElementsAre(-1, -1, -1, theirs[3]));
  EXPECT_EQ(pool.num_promised(), 3);
  fresh.Adopt(4, absl::Span<const int32_t>(), 4);
  EXPECT_EQ(fresh.num_held(), 0);
  EXPECT_EQ(pool.num_promised(), 2);
  other.Clear();
  EXPECT_EQ(pool.num_promised(), 0);
  pool.CheckInvariants();
}

TEST(BlockTableTest, CountsWhatItShares) {
  BlockPool pool(10);
  BlockTable a(&pool), b(&pool), c(&pool);
  ASSERT_TRUE(a.GrowTo(6));
  EXPECT_EQ(a.CountShared().num_blocks, 0);
  for (int32_t i = 0; i < 4; ++i) b.Share(a.blocks()[size_t(i)]);
  for (int32_t i = 0; i < 1; ++i) c.Share(a.blocks()[size_t(i)]);
  ASSERT_TRUE(b.GrowTo(5) && c.GrowTo(2));
  double parts = 0;
  for (const BlockTable* table : {&a, &b, &c}) parts += table->CountShared().part;
  EXPECT_EQ(a.CountShared().num_blocks, 4);
  EXPECT_EQ(b.CountShared().num_blocks, 4);
  EXPECT_EQ(c.CountShared().num_blocks, 1);
  EXPECT_DOUBLE_EQ(parts, 4) << "the parts of all are the blocks that several hold";
}

TEST(BlockTableTest, IsCutAtTheEnd) {
  BlockPool pool(6);
  BlockTable table(&pool, /*rolls=*/true);
  ASSERT_TRUE(table.GrowTo(5));
  const std::vector<int32_t> blocks(table.blocks().begin(), table.blocks().end());
  table.DropFront(2, 5);
  table.Truncate(3);
  EXPECT_THAT(table.blocks(), ::testing::ElementsAre(-1, -1, blocks[2]));
  EXPECT_EQ(pool.num_live(), 1);
  table.Truncate(4);
  EXPECT_EQ(table.size(), 3) << "shorter already";
  table.Truncate(2);
  EXPECT_EQ(table.num_held(), 0);
  EXPECT_EQ(pool.num_live(), 0);
  pool.CheckInvariants();
}

TEST(BlockTableTest, CopiesOnWriteWhatOthersReadAndNothingElse) {
  BlockPool pool(4);
  BlockTable owner(&pool), reader(&pool);
  ASSERT_TRUE(owner.GrowTo(2));
  const std::vector<int32_t> blocks(owner.blocks().begin(), owner.blocks().end());
  reader.Share(blocks[0]);
  BlockCopy copy;
  EXPECT_FALSE(owner.MakeWritable(1, &copy));
  ASSERT_TRUE(reader.MakeWritable(0, &copy));
  EXPECT_EQ(copy, (BlockCopy{.from = blocks[0], .to = reader.blocks()[0]}));
  EXPECT_NE(reader.blocks()[0], blocks[0]);
  EXPECT_EQ(pool.ref_count(blocks[0]), 1);
  EXPECT_FALSE(owner.MakeWritable(0, &copy)) << "it is alone with it again";
  pool.KeepContents(blocks[1]);
  ASSERT_TRUE(owner.MakeWritable(1, &copy)) << "its contents are kept";
  EXPECT_EQ(pool.num_cached(), 1);
  pool.CheckInvariants();
}

TEST(BlockTableTest, TheEndOfASequenceIsEvictedBeforeItsBeginning) {
  BlockPool pool(3);
  std::vector<int32_t> blocks;
  {
    BlockTable table(&pool);
    ASSERT_TRUE(table.GrowTo(3));
    blocks.assign(table.blocks().begin(), table.blocks().end());
    for (int32_t block : blocks) pool.KeepContents(block);
  }
  EXPECT_EQ(pool.num_cached(), 3);
  EXPECT_EQ(pool.Allocate(), blocks[2]);
  EXPECT_EQ(pool.Allocate(), blocks[1]);
  EXPECT_EQ(pool.Allocate(), blocks[0]);
  ReleaseAll(&pool, blocks);
}

TEST(BlockPoolDeathTest, DiesOfMisuse) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        BlockPool pool(2);
        pool.Release(pool.Allocate());
        pool.Release(0);
      },
      "ref_count > 0");
  EXPECT_DEATH(
      {
        BlockPool pool(1);
        pool.Allocate();
        pool.Allocate();
      },
      "block >= 0");
  EXPECT_DEATH({ BlockPool(1).Allocate(); }, "num_live_ == 0") << "a leaked block";
}

}  // namespace
}  // namespace sluice
