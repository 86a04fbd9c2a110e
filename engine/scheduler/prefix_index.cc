#include "engine/scheduler/prefix_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/siphash.h"

namespace sluice {
namespace {

// First words of what is hashed, so that no key has the hash of a salt.
constexpr uint64_t kOfKey = 1, kOfSalt = 2;

uint64_t Pair(int32_t low, int32_t high) { return uint64_t(uint32_t(high)) << 32 | uint32_t(low); }

}  // namespace

PrefixIndex::PrefixIndex(int32_t num_blocks, int32_t block_size, absl::uint128 root)
    : root_(root), block_size_(block_size) {
  SLUICE_CHECK(num_blocks > 0 && block_size > 0);
  entries_.resize(size_t(num_blocks));
  tokens_.resize(size_t(num_blocks) * size_t(block_size));
  buckets_.assign(std::bit_ceil(size_t(num_blocks)), -1);
}

KvKeyId PrefixIndex::IdOf(const KvKey& key) const {
  SipHash128 hash(root_);
  hash.Add(kOfKey);
  hash.Add(key.parent);
  hash.Add(key.salt);
  hash.Add(Pair(key.routed, key.num_routed));
  hash.Add(Pair(key.rope_class, key.adapter));
  // As many in every key of this index.
  SLUICE_CHECK(int32_t(key.tokens.size()) == block_size_);
  size_t i = 0;
  for (; i + 1 < key.tokens.size(); i += 2) hash.Add(Pair(key.tokens[i], key.tokens[i + 1]));
  if (i < key.tokens.size()) hash.Add(Pair(key.tokens[i], 0));
  return hash.Finish();
}

KvSalt PrefixIndex::SaltOf(absl::string_view salt) const {
  if (salt.empty()) return 0;
  SipHash128 hash(root_);
  hash.Add(kOfSalt);
  hash.Add(uint64_t{salt.size()});
  for (; !salt.empty(); salt.remove_prefix(std::min(salt.size(), sizeof(uint64_t)))) {
    uint64_t word = 0;
    std::memcpy(&word, salt.data(), std::min(salt.size(), sizeof word));
    hash.Add(word);
  }
  return hash.Finish();
}

size_t PrefixIndex::BucketIndex(int32_t group, KvKeyId id) const {
  // The groups of a prefix share its name and not a bucket. The factor is odd: of few groups none falls on another.
  return (absl::Uint128Low64(id) + uint64_t(uint32_t(group)) * 0x9e3779b97f4a7c15) & (buckets_.size() - 1);
}
int32_t& PrefixIndex::BucketOf(int32_t group, KvKeyId id) { return buckets_[BucketIndex(group, id)]; }
int32_t PrefixIndex::BucketOf(int32_t group, KvKeyId id) const { return buckets_[BucketIndex(group, id)]; }

int32_t PrefixIndex::Find(int32_t group, KvKeyId id, const KvKey& key) const {
  for (int32_t block = BucketOf(group, id); block >= 0; block = entries_[size_t(block)].next) {
    const Entry& entry = entries_[size_t(block)];
    if (entry.id == id && entry.group == group && entry.key == key) return block;
  }
  return -1;
}

void PrefixIndex::Insert(int32_t group, KvKeyId id, const KvKey& key, int32_t block) {
  SLUICE_CHECK(!contains(block) && group >= 0);
  Entry& entry = entries_[size_t(block)];
  int32_t& bucket = BucketOf(group, id);
  const auto tokens = absl::MakeSpan(tokens_).subspan(size_t(block) * size_t(block_size_), size_t(block_size_));
  std::copy(key.tokens.begin(), key.tokens.end(), tokens.begin());
  entry = {.id = id, .key = key, .group = group, .next = bucket};
  entry.key.tokens = tokens;
  bucket = block;
  ++size_;
}

void PrefixIndex::Forget(int32_t block) {
  SLUICE_CHECK(contains(block));
  Entry& entry = entries_[size_t(block)];
  int32_t* link = &BucketOf(entry.group, entry.id);
  while (*link != block) link = &entries_[size_t(*link)].next;
  *link = entry.next;
  entry = Entry();
  --size_;
}

}  // namespace sluice
