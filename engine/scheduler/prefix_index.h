// Which block of the pool holds what a key says: a hash table over the full blocks whose contents are kept.
//
// A key is named by a 128-bit hash of all its fields, the name of the block before it included, so a name stands for the
// whole prefix. The hash is SipHash under a random key, the root, that each process draws for itself and tells nobody:
// nobody can make two prefixes of one name on purpose, and by chance 2^40 blocks have two with a probability of 2^-49. A hit
// compares the whole key none the less: the block's own tokens, how its rows were computed, the salt, and the parent's name.
// What is believed and not compared are the tokens of the blocks before: the entries that hold them may be gone, in a window
// group as a rule.
//
// Memory is bounded by the pool: an entry per block, its tokens included, all of it allocated at the start.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/scheduler/kv_key.h"

namespace sluice {

// All operations take constant time, whatever clients send, since nobody can aim at a bucket. Not thread-safe: owned by the engine thread, which makes looking a block
// up and holding it (BlockPool::AddRef) one thing as long as nothing is allocated in between.
class PrefixIndex {
 public:
  // For blocks 0 .. num_blocks - 1 of block_size tokens. REQUIRES: both > 0
  PrefixIndex(int32_t num_blocks, int32_t block_size, absl::uint128 root);

  // The name of a key; never 0, in all likelihood. Keys of different indexes have different ones.
  KvKeyId IdOf(const KvKey& key) const;

  // What keeps the keys of requests with this salt apart from those of all others; 0 of an empty one.
  KvSalt SaltOf(absl::string_view salt) const;

  // The block that holds the keys and values of KV group `group` of what `key` says; -1: none. REQUIRES: id == IdOf(key)
  int32_t Find(int32_t group, KvKeyId id, const KvKey& key) const;

  // From now until Forget, `block` is what Find returns for the key, whose tokens are copied. REQUIRES: id == IdOf(key), the
  // block is not in the index, and neither is the key in this group
  void Insert(int32_t group, KvKeyId id, const KvKey& key, int32_t block);

  // REQUIRES: contains(block)
  void Forget(int32_t block);

  bool contains(int32_t block) const { return entries_[size_t(block)].group >= 0; }
  int32_t size() const { return size_; }  // blocks in the index

 private:
  struct Entry {
    KvKeyId id = 0;
    KvKey key;           // its tokens lie in tokens_
    int32_t group = -1;  // -1: the block is not in the index
    int32_t next = -1;   // with the same bucket
  };
  int32_t& BucketOf(int32_t group, KvKeyId id);
  int32_t BucketOf(int32_t group, KvKeyId id) const;
  size_t BucketIndex(int32_t group, KvKeyId id) const;

  const absl::uint128 root_;
  const int32_t block_size_;
  std::vector<Entry> entries_;    // [num_blocks]
  std::vector<int32_t> tokens_;   // [num_blocks * block_size]
  std::vector<int32_t> buckets_;  // the first block of each chain, -1: empty; a power of two of them
  int32_t size_ = 0;
};

}  // namespace sluice
