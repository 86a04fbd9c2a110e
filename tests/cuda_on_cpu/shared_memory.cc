#include "tests/cuda_on_cpu/shared_memory.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/cuda_on_cpu/sanitizer.h"

namespace sluice::cuda_on_cpu {
namespace {

struct Arena {
  unsigned char* start = nullptr;
  size_t bytes = 0;
  // ThreadSanitizer must not take one block's memory for another's, so there each block has its own until the launch
  // ends.
  std::vector<unsigned char*> past;
};

Arena& ThisArena() {
  static thread_local Arena arena;
  return arena;
}

size_t Padded(size_t bytes) { return (bytes / kSharedAlignment + 2) * kSharedAlignment; }  // and room to poison

}  // namespace

void* SharedMemory(size_t bytes, const SourceLine& where) {
  const Arena& arena = ThisArena();
  Require(bytes <= arena.bytes, "the shared memory of the kernel is larger than its launch gave", where);
  return arena.start;
}

void RequireShared(const void* start, size_t bytes, const SourceLine& where) {
  const Arena& arena = ThisArena();
  const auto* first = static_cast<const unsigned char*>(start);
  Require(first >= arena.start && first + bytes <= arena.start + arena.bytes,
          "an address is not in the block's shared memory", where);
}

void BeginSharedMemory(size_t bytes) {
  Arena& arena = ThisArena();
  if (arena.start != nullptr && UnderTsan()) {
    arena.past.push_back(arena.start);
    arena.start = nullptr;
  }
  if (arena.start == nullptr) {
    arena.start = static_cast<unsigned char*>(std::aligned_alloc(kSharedAlignment, Padded(bytes)));
    if (arena.start == nullptr) std::abort();
    arena.bytes = bytes;
    Poison(arena.start + bytes, Padded(bytes) - bytes);
  }
  std::memset(arena.start, 0xff, bytes);
}

void EndSharedMemory() {
  Arena& arena = ThisArena();
  for (unsigned char* past : arena.past) std::free(past);
  arena.past.clear();
  std::free(arena.start);
  arena.start = nullptr;
  arena.bytes = 0;
}

}  // namespace sluice::cuda_on_cpu
