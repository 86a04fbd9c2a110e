#include "tests/cuda_on_cpu/shared_memory.h"

#include <cstdlib>
#include <cstring>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/sanitizer.h"

namespace sluice::cuda_on_cpu {
namespace {

size_t Padded(size_t bytes) { return (bytes / kSharedAlignment + 2) * kSharedAlignment; }  // with room to poison

}  // namespace

SharedArena::~SharedArena() { std::free(start_); }

void SharedArena::Begin(size_t bytes) {
  if (start_ == nullptr || bytes != bytes_) {
    std::free(start_);
    start_ = static_cast<unsigned char*>(std::aligned_alloc(kSharedAlignment, Padded(bytes)));
    if (start_ == nullptr) std::abort();
    bytes_ = bytes;
    Poison(start_ + bytes, Padded(bytes) - bytes);
  }
  std::memset(start_, 0xff, bytes);
}

void* SharedMemory(size_t bytes, const SourceLine& where) {
  const SharedArena& arena = ThisBlock().shared();
  Require(bytes <= arena.bytes(), "the shared memory of the kernel is larger than its launch gave", where);
  return arena.start();
}

void RequireShared(const void* start, size_t bytes, const SourceLine& where) {
  const SharedArena& arena = ThisBlock().shared();
  const auto* first = static_cast<const unsigned char*>(start);
  Require(first >= arena.start() && first + bytes <= arena.start() + arena.bytes(),
          "an address is not in the block's shared memory", where);
}

}  // namespace sluice::cuda_on_cpu
