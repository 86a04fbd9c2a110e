#include "engine/scheduler/block_pool.h"

#include <algorithm>

#include "engine/base/check.h"

namespace sluice {

BlockPool::BlockPool(int32_t num_blocks, std::function<void(int32_t)> forget) : forget_(std::move(forget)) {
  SLUICE_CHECK(num_blocks > 0);
  blocks_.resize(num_blocks);
  for (int32_t block = 0; block < num_blocks; ++block) PushBack(&free_, block);
}

BlockPool::~BlockPool() { SLUICE_CHECK(num_live_ == 0 && num_promised_ == 0); }

int32_t BlockPool::Allocate() {
  List* const list = free_.size > 0 ? &free_ : &cached_;
  const int32_t block = list->head;
  SLUICE_CHECK(block >= 0 && num_available() > 0);
  Unlink(list, block);
  if (blocks_[block].keep_contents && forget_) forget_(block);
  blocks_[block].keep_contents = false;
  blocks_[block].ref_count = 1;
  ++num_live_;
  return block;
}

void BlockPool::AddRef(int32_t block) {
  Block& b = blocks_[block];
  if (b.ref_count == 0) {
    SLUICE_CHECK(b.keep_contents);
    Unlink(&cached_, block);
    ++num_live_;
  }
  ++b.ref_count;
}

void BlockPool::Release(int32_t block) {
  Block& b = blocks_[block];
  SLUICE_CHECK(b.ref_count > 0);
  if (--b.ref_count > 0) return;
  --num_live_;
  if (b.keep_contents) {
    PushBack(&cached_, block);
  } else {
    PushFront(&free_, block);
  }
}

void BlockPool::KeepContents(int32_t block) {
  SLUICE_CHECK(blocks_[block].ref_count > 0);
  blocks_[block].keep_contents = true;
}

void BlockPool::Promise() {
  SLUICE_CHECK(num_available() > 0);
  ++num_promised_;
}

void BlockPool::Redeem() {
  SLUICE_CHECK(num_promised_ > 0);
  --num_promised_;
}

void BlockPool::PushFront(List* list, int32_t block) {
  blocks_[block].prev = -1;
  blocks_[block].next = list->head;
  (list->head >= 0 ? blocks_[list->head].prev : list->tail) = block;
  list->head = block;
  ++list->size;
}

void BlockPool::PushBack(List* list, int32_t block) {
  blocks_[block].prev = list->tail;
  blocks_[block].next = -1;
  (list->tail >= 0 ? blocks_[list->tail].next : list->head) = block;
  list->tail = block;
  ++list->size;
}

void BlockPool::Unlink(List* list, int32_t block) {
  Block& b = blocks_[block];
  (b.prev >= 0 ? blocks_[b.prev].next : list->head) = b.next;
  (b.next >= 0 ? blocks_[b.next].prev : list->tail) = b.prev;
  b.prev = b.next = -1;
  --list->size;
}

void BlockPool::CheckInvariants() const {
  CheckList(free_, /*keeps_contents=*/false);
  CheckList(cached_, /*keeps_contents=*/true);
  int32_t num_live = 0;
  for (const Block& b : blocks_) num_live += b.ref_count > 0;
  SLUICE_CHECK(num_live == num_live_);
  SLUICE_CHECK(num_live_ + cached_.size + free_.size == num_total());
  SLUICE_CHECK(num_promised_ >= 0 && num_available() >= 0);
}

void BlockPool::CheckList(const List& list, bool keeps_contents) const {
  int32_t size = 0;
  int32_t prev = -1;
  for (int32_t block = list.head; block >= 0; prev = block, block = blocks_[block].next) {
    SLUICE_CHECK(blocks_[block].ref_count == 0);
    SLUICE_CHECK(blocks_[block].keep_contents == keeps_contents);
    SLUICE_CHECK(blocks_[block].prev == prev);
    SLUICE_CHECK(++size <= list.size);
  }
  SLUICE_CHECK(list.tail == prev);
  SLUICE_CHECK(size == list.size);
}

bool BlockTable::GrowTo(int32_t num_entries) {
  if (num_entries - size() > pool_->num_available()) return false;
  while (size() < num_entries) blocks_.push_back(pool_->Allocate());
  return true;
}

void BlockTable::Hold(int32_t block) {
  if (rolls_ && pool_->ref_count(block) > 0) pool_->Promise();
  pool_->AddRef(block);
}

void BlockTable::GiveBack(int32_t block) {
  if (rolls_ && pool_->ref_count(block) > 1) pool_->Redeem();
  pool_->Release(block);
}

void BlockTable::Share(int32_t block) {
  Hold(block);
  blocks_.push_back(block);
}

void BlockTable::Adopt(int32_t first, absl::Span<const int32_t> blocks, int32_t num_dropped) {
  const int32_t end = first + int32_t(blocks.size());
  SLUICE_CHECK(first <= size() && num_dropped_ <= num_dropped && num_dropped <= end);
  // All of it first: what goes back makes room for what comes.
  for (int32_t entry = num_dropped_; entry < std::min(num_dropped, size()); ++entry) {
    GiveBack(std::exchange(blocks_[size_t(entry)], -1));
  }
  for (int32_t entry = std::max(first, num_dropped); entry < std::min(end, size()); ++entry) {
    GiveBack(std::exchange(blocks_[size_t(entry)], -1));
  }
  blocks_.resize(size_t(std::max(end, size())), -1);
  num_dropped_ = num_dropped;
  for (int32_t entry = std::max(first, num_dropped); entry < end; ++entry) {
    blocks_[size_t(entry)] = blocks[size_t(entry - first)];
    Hold(blocks_[size_t(entry)]);
  }
}

void BlockTable::DropFront(int32_t num_entries, int32_t num_wanted) {
  SLUICE_CHECK(num_entries <= size() && (rolls_ || num_entries == 0));
  for (; num_dropped_ < num_entries; ++num_dropped_) {
    const int32_t block = std::exchange(blocks_[size_t(num_dropped_)], -1);
    const bool wanted = size() < num_wanted;
    if (wanted && pool_->writable(block)) {
      blocks_.push_back(block);
      continue;
    }
    GiveBack(block);
    if (wanted) blocks_.push_back(pool_->Allocate());  // there is one: this, or the one set aside while others hold it
  }
}

void BlockTable::Truncate(int32_t num_entries) {
  SLUICE_CHECK(num_entries >= num_dropped_);
  for (; size() > num_entries; blocks_.pop_back()) GiveBack(blocks_.back());
}

BlockTable::SharedPart BlockTable::CountShared() const {
  SLUICE_CHECK(!rolls_);
  SharedPart shared;
  for (auto run = blocks_.begin(); run != blocks_.end();) {
    const int32_t holders = pool_->ref_count(*run);
    if (holders < 2) break;
    const auto end = std::partition_point(run, blocks_.end(),
                                          [&](int32_t block) { return pool_->ref_count(block) >= holders; });
    shared.num_blocks += int32_t(end - run);
    shared.part += double(end - run) / holders;
    run = end;
  }
  return shared;
}

bool BlockTable::MakeWritable(int32_t entry, BlockCopy* copy) {
  int32_t& block = blocks_[size_t(entry)];
  SLUICE_CHECK(block >= 0);
  if (pool_->writable(block)) return false;
  *copy = {.from = block, .to = pool_->Allocate()};
  GiveBack(block);
  block = copy->to;
  return true;
}

void BlockTable::Clear() {
  Truncate(num_dropped_);
  blocks_.clear();
  num_dropped_ = 0;
}

}  // namespace sluice
