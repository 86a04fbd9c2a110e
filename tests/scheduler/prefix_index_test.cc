#include "engine/scheduler/prefix_index.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace sluice {
namespace {

constexpr int32_t kBlockSize = 4;

class PrefixIndexTest : public ::testing::Test {
 protected:
  int32_t Find(const KvKey& key, int32_t group = 0) const { return index_.Find(group, index_.IdOf(key), key); }
  void Insert(const KvKey& key, int32_t block, int32_t group = 0) {
    index_.Insert(group, index_.IdOf(key), key, block);
  }

  const std::vector<int32_t> tokens_ = {5, 6, 7, 8}, other_tokens_ = {5, 6, 7, 9};
  const KvKey key_{.parent = 1, .tokens = tokens_, .routed = 1, .num_routed = 2, .rope_class = 3, .adapter = 4, .salt = 5};
  PrefixIndex index_{8, kBlockSize, /*root=*/42};
};

TEST_F(PrefixIndexTest, FindsABlockUntilItIsForgotten) {
  EXPECT_EQ(Find(key_), -1);
  Insert(key_, 3);
  EXPECT_EQ(Find(key_), 3);
  EXPECT_TRUE(index_.contains(3));
  EXPECT_FALSE(index_.contains(2));
  EXPECT_EQ(index_.size(), 1);
  index_.Forget(3);
  EXPECT_EQ(Find(key_), -1);
  EXPECT_FALSE(index_.contains(3));
  EXPECT_EQ(index_.size(), 0);
  Insert(key_, 2);
  EXPECT_EQ(Find(key_), 2);
}

TEST_F(PrefixIndexTest, EachGroupHasItsOwnBlockForAKey) {
  Insert(key_, 3, 0);
  EXPECT_EQ(Find(key_, 1), -1);
  Insert(key_, 4, 1);
  EXPECT_EQ(Find(key_, 0), 3);
  EXPECT_EQ(Find(key_, 1), 4);
  index_.Forget(3);
  EXPECT_EQ(Find(key_, 0), -1);
  EXPECT_EQ(Find(key_, 1), 4);
}

// The fields of a key, each changed in turn.
std::vector<std::function<void(KvKey*)>> Changes(const std::vector<int32_t>& other_tokens) {
  return {[](KvKey* k) { ++k->parent; },
          [&](KvKey* k) { k->tokens = other_tokens; },
          [](KvKey* k) { ++k->routed; },
          [](KvKey* k) { ++k->num_routed; },
          [](KvKey* k) { ++k->rope_class; },
          [](KvKey* k) { ++k->adapter; },
          [](KvKey* k) { ++k->salt; },
          [](KvKey* k) { k->parent += absl::MakeUint128(1, 0); },
          [](KvKey* k) { k->salt += absl::MakeUint128(1, 0); }};
}

TEST_F(PrefixIndexTest, TheWholeKeyCountsAndNotOnlyItsHash) {
  Insert(key_, 3);
  for (const auto& change : Changes(other_tokens_)) {
    KvKey other = key_;
    change(&other);
    EXPECT_NE(index_.IdOf(other), index_.IdOf(key_));
    EXPECT_EQ(index_.Find(0, index_.IdOf(key_), other), -1) << "as if the hashes were equal";
    EXPECT_EQ(Find(other), -1);
  }
}

TEST_F(PrefixIndexTest, KeepsACopyOfTheTokens) {
  {
    std::vector<int32_t> gone = tokens_;
    KvKey key = key_;
    key.tokens = gone;
    Insert(key, 3);
    gone.assign(gone.size(), 0);
  }
  EXPECT_EQ(Find(key_), 3);
}

TEST_F(PrefixIndexTest, NamesDependOnTheRoot) {
  const PrefixIndex other(8, kBlockSize, /*root=*/43), same(16, kBlockSize, /*root=*/42);
  EXPECT_NE(other.IdOf(key_), index_.IdOf(key_));
  EXPECT_NE(other.SaltOf("a"), index_.SaltOf("a"));
  EXPECT_EQ(same.IdOf(key_), index_.IdOf(key_));
  EXPECT_EQ(same.SaltOf("a"), index_.SaltOf("a"));
}

TEST_F(PrefixIndexTest, SaltsThatDifferAreDifferentSalts) {
  EXPECT_EQ(index_.SaltOf(""), 0);
  absl::flat_hash_set<KvSalt> salts;
  const std::vector<std::string> texts = {"", "a", "b", "A", std::string(1, '\0'), std::string(2, '\0'), "aaaaaaaa", "aaaaaaaaa",
                                          std::string("aaaaaaaa\0", 9), std::string(127, 'x'), std::string(128, 'x')};
  for (const std::string& text : texts) salts.insert(index_.SaltOf(text));
  EXPECT_EQ(salts.size(), texts.size());
}

TEST(PrefixIndexOfOneTokenTest, BlocksOfAnOddNumberOfTokensHaveNamesOfAllOfThem) {
  for (const int32_t block_size : {1, 3}) {
    const PrefixIndex index(4, block_size, 1);
    absl::flat_hash_set<KvKeyId> ids;
    std::vector<int32_t> tokens(size_t(block_size), 1);
    for (int32_t& token : tokens) {
      for (const int32_t value : {2, 3}) {
        token = value;
        ids.insert(index.IdOf({.tokens = tokens}));
      }
    }
    EXPECT_EQ(ids.size(), size_t(block_size) * 2);
  }
}

// Against a map, in an index so small that most chains have several blocks.
TEST(PrefixIndexRandomTest, BehavesLikeAMap) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 rng(seed);
    const int32_t num_blocks = int32_t(1 + rng() % 40);
    PrefixIndex index(num_blocks, kBlockSize, seed);
    std::vector<std::vector<int32_t>> tokens(60);
    for (int32_t i = 0; i < 60; ++i) tokens[size_t(i)] = {i, i / 2, 1, 2};
    std::map<std::pair<int32_t, int32_t>, int32_t> expected;  // group, number of the key -> block
    std::vector<bool> used(size_t(num_blocks), false);
    for (int step = 0; step < 3000; ++step) {
      const auto group = int32_t(rng() % 3), number = int32_t(rng() % 60), block = int32_t(rng() % uint32_t(num_blocks));
      const KvKey key{.parent = 9, .tokens = tokens[size_t(number)]};
      const KvKeyId id = index.IdOf(key);
      const auto it = expected.find({group, number});
      ASSERT_EQ(index.Find(group, id, key), it == expected.end() ? -1 : it->second);
      ASSERT_EQ(index.contains(block), used[size_t(block)]);
      if (used[size_t(block)] && rng() % 2 == 0) {
        index.Forget(block);
        used[size_t(block)] = false;
        std::erase_if(expected, [&](const auto& entry) { return entry.second == block; });
      } else if (!used[size_t(block)] && it == expected.end()) {
        index.Insert(group, id, key, block);
        used[size_t(block)] = true;
        expected[{group, number}] = block;
      }
      ASSERT_EQ(index.size(), int32_t(expected.size()));
    }
  }
}

}  // namespace
}  // namespace sluice
