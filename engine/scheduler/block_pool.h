// Who holds which block of the paged KV cache. A block is an index; the memory behind it belongs to the device side.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace sluice {

// Every block is in exactly one of three states:
//   live    referenced by at least one holder
//   cached  referenced by nobody, but its contents are worth keeping; given away only when no free block is left
//   free    empty
// All operations are O(1) and allocate nothing. Not thread-safe: owned by the engine thread.
class BlockPool {
 public:
  // `forget` is called with each block whose contents have been kept when Allocate is about to return it: whoever remembers
  // what it held forgets it. REQUIRES: num_blocks > 0
  explicit BlockPool(int32_t num_blocks, std::function<void(int32_t)> forget = nullptr);
  ~BlockPool();                            // REQUIRES: no block is live
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Hands out an empty block with one reference: the most recently freed one, else the cached one that has gone unused
  // longest. REQUIRES: num_available() > 0
  int32_t Allocate();

  // One more holder of a live or cached block: nobody writes to it until it has one holder again, and as long as it is
  // held it is not evicted.
  void AddRef(int32_t block);

  // One holder fewer; the last one makes the block cached if its contents are kept, else free. REQUIRES: live.
  void Release(int32_t block);

  // From now until Allocate hands the block out again its contents outlive its holders. REQUIRES: live.
  void KeepContents(int32_t block);

  // Sets a block aside, which one, is left open: until it is redeemed num_available() has one block fewer.
  void Promise();  // REQUIRES: num_available() > 0
  void Redeem();   // REQUIRES: num_promised() > 0

  int32_t ref_count(int32_t block) const { return blocks_[block].ref_count; }
  bool keeps_contents(int32_t block) const { return blocks_[block].keep_contents; }
  // Whether the block's one holder may overwrite it: nobody else reads it, and nobody counts on its contents.
  bool writable(int32_t block) const { return blocks_[block].ref_count == 1 && !blocks_[block].keep_contents; }
  int32_t num_total() const { return int32_t(blocks_.size()); }
  int32_t num_live() const { return num_live_; }
  int32_t num_cached() const { return cached_.size; }
  int32_t num_free() const { return free_.size; }
  int32_t num_promised() const { return num_promised_; }
  // What Allocate can hand out.
  int32_t num_available() const { return num_free() + num_cached() - num_promised_; }

  // Walks both lists and dies if a block is lost, listed twice or listed while live. For tests and debug builds.
  void CheckInvariants() const;

 private:
  struct Block {
    int32_t ref_count = 0;
    int32_t prev = -1;  // neighbours in the list the block is in
    int32_t next = -1;
    bool keep_contents = false;
  };
  struct List {  // doubly linked through Block::prev and next
    int32_t head = -1;
    int32_t tail = -1;
    int32_t size = 0;
  };

  void PushFront(List* list, int32_t block);
  void PushBack(List* list, int32_t block);
  void Unlink(List* list, int32_t block);
  void CheckList(const List& list, bool keeps_contents) const;

  const std::function<void(int32_t)> forget_;
  std::vector<Block> blocks_;
  List free_;    // last freed first
  List cached_;  // unused longest first
  int32_t num_live_ = 0;
  int32_t num_promised_ = 0;
};

// What a device has to do before rows are written to block `to`: all of `from` is copied there.
struct BlockCopy {
  int32_t from = -1, to = -1;
  bool operator==(const BlockCopy&) const = default;
};

// The blocks of one sequence in one KV group, in order and one reference each; gives them back when it goes. Entries at
// the front that nobody needs any more are -1. Blocks may be shared with other tables, at the same entries: they are read
// by all and written by none.
//
// A table of a window or chunk group `rolls`: its sequence has reckoned with a number of blocks, which move on with the
// window. What such a table drops it may have to replace, also where somebody else still holds it; so of a block that n of
// them hold n - 1 others are set aside in the pool (BlockPool::Promise). Sharing saves them computing, but no room. A table
// that does not roll drops nothing before its end, so blocks that it shares are room gained. Tables that share a block roll,
// or none does.
class BlockTable {
 public:
  explicit BlockTable(BlockPool* pool, bool rolls = false) : pool_(pool), rolls_(rolls) {}  // `pool` outlives the table
  ~BlockTable() { Clear(); }
  BlockTable(BlockTable&& other) noexcept  // leaves `other` empty
      : pool_(other.pool_),
        rolls_(other.rolls_),
        blocks_(std::exchange(other.blocks_, {})),
        num_dropped_(std::exchange(other.num_dropped_, 0)) {}
  BlockTable& operator=(BlockTable&&) = delete;

  // Allocates until the table has `num_entries`; false, and nothing has changed, if the pool has too few blocks.
  // A table that is long enough already stays as it is.
  [[nodiscard]] bool GrowTo(int32_t num_entries);

  // Appends a live or cached block, which this table holds from now on too. REQUIRES: a block is available if the table
  // rolls, or if the block is cached
  void Share(int32_t block);

  // Makes `blocks`, live or cached ones, the entries from `first` on, and those before `num_dropped` -1, whatever `blocks`
  // has there. What the table held in these places goes back; entries behind stay. REQUIRES: first <= size(), num_dropped()
  // <= num_dropped <= first + blocks.size(), and for entries that are new what Share requires
  void Adopt(int32_t first, absl::Span<const int32_t> blocks, int32_t num_dropped);

  // Makes the first `num_entries` entries -1. As long as the table has fewer than `num_wanted` entries, each block dropped
  // is replaced by one at the end: by itself if it may be overwritten, else by another of the pool. REQUIRES: num_entries <=
  // size(); the table rolls, or num_entries is 0
  void DropFront(int32_t num_entries, int32_t num_wanted);

  // Gives the blocks from `num_entries` on back, last one first; a shorter table stays as it is. REQUIRES: num_entries >=
  // num_dropped()
  void Truncate(int32_t num_entries);

  // Copy on write: makes the block of `entry` one that may be written. True if it has become another, whose contents the
  // device copies as `copy` says; false if it may be written as it is. REQUIRES: the entry has a block; a block that is not
  // writable() needs one available in the pool.
  [[nodiscard]] bool MakeWritable(int32_t entry, BlockCopy* copy);

  // Gives all blocks back, last one first: of cached blocks the end of a sequence is then evicted before its beginning.
  void Clear();

  int32_t size() const { return int32_t(blocks_.size()); }  // entries, -1 included
  int32_t num_dropped() const { return num_dropped_; }      // entries that are -1
  int32_t num_held() const { return size() - num_dropped_; }
  absl::Span<const int32_t> blocks() const { return blocks_; }
  bool rolls() const { return rolls_; }

  // Of a table that does not roll, and shares blocks only with tables that have all its blocks before them too: how many
  // others hold as well, and its part of them if each block is divided among its holders. O(log size) for each of the numbers
  // of holders that there are.
  struct SharedPart {
    int32_t num_blocks = 0;
    double part = 0;
  };
  SharedPart CountShared() const;

 private:
  void Hold(int32_t block);
  void GiveBack(int32_t block);

  BlockPool* const pool_;
  const bool rolls_;
  std::vector<int32_t> blocks_;
  int32_t num_dropped_ = 0;
};

}  // namespace sluice
