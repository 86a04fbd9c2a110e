#include "engine/scheduler/block_pool.h"

#include "engine/base/check.h"

namespace sluice {

BlockPool::BlockPool(int32_t num_blocks) {
  SLUICE_CHECK(num_blocks > 0);
  blocks_.resize(num_blocks);
  for (int32_t block = 0; block < num_blocks; ++block) PushBack(&free_, block);
}

BlockPool::~BlockPool() { SLUICE_CHECK(num_live_ == 0); }

int32_t BlockPool::Allocate() {
  List* const list = free_.size > 0 ? &free_ : &cached_;
  const int32_t block = list->head;
  SLUICE_CHECK(block >= 0);
  Unlink(list, block);
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

void BlockTable::DropFront(int32_t num_entries, int32_t num_wanted) {
  SLUICE_CHECK(num_entries <= size());
  for (; num_dropped_ < num_entries; ++num_dropped_) {
    const int32_t block = blocks_[num_dropped_];
    blocks_[num_dropped_] = -1;
    if (size() < num_wanted && pool_->writable(block)) {
      blocks_.push_back(block);
    } else {
      pool_->Release(block);
    }
  }
}

void BlockTable::Share(int32_t block) {
  pool_->AddRef(block);
  blocks_.push_back(block);
}

void BlockTable::Truncate(int32_t num_entries) {
  SLUICE_CHECK(num_entries >= num_dropped_);
  for (; size() > num_entries; blocks_.pop_back()) pool_->Release(blocks_.back());
}

bool BlockTable::MakeWritable(int32_t entry, BlockCopy* copy) {
  int32_t& block = blocks_[size_t(entry)];
  SLUICE_CHECK(block >= 0);
  if (pool_->writable(block)) return false;
  *copy = {.from = block, .to = pool_->Allocate()};
  pool_->Release(block);
  block = copy->to;
  return true;
}

void BlockTable::Clear() {
  Truncate(num_dropped_);
  blocks_.clear();
  num_dropped_ = 0;
}

}  // namespace sluice
