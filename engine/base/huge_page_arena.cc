#include "engine/base/huge_page_arena.h"

#include <sys/mman.h>

#include <utility>

namespace sluice {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// A 2 MiB aligned mapping of a whole number of huge pages.
std::shared_ptr<uint8_t> MapChunk(size_t bytes) {
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (size < bytes || size + kHugePage < size) return nullptr;
  // Map one huge page more than needed and give back what lies outside the aligned part.
  void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  uint8_t* const begin = static_cast<uint8_t*>(mapped);
  const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  uint8_t* const chunk = begin + skip;
  if (skip > 0) munmap(begin, skip);
  if (skip < kHugePage) munmap(chunk + size, kHugePage - skip);
  madvise(chunk, size, MADV_HUGEPAGE);  // advice: small pages work too
  return std::shared_ptr<uint8_t>(chunk, [size](uint8_t* p) { munmap(p, size); });
}

}  // namespace

HugePageArena::HugePageArena(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

std::shared_ptr<uint8_t> HugePageArena::Allocate(size_t bytes) {
  const size_t size = (bytes + 63) / 64 * 64;
  if (size < bytes) return nullptr;
  if (size > chunk_bytes_) return MapChunk(size);
  MutexLock lock(&mutex_);
  if (chunk_ == nullptr || chunk_bytes_ - used_ < size) {
    std::shared_ptr<uint8_t> chunk = MapChunk(chunk_bytes_);
    if (chunk == nullptr) return nullptr;
    chunk_ = std::move(chunk);
    used_ = 0;
  }
  std::shared_ptr<uint8_t> piece(chunk_, chunk_.get() + used_);
  used_ += size;
  return piece;
}

}  // namespace sluice
