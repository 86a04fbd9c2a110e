#include "tests/cuda_on_cpu/async_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/shared_memory.h"

namespace sluice::cuda_on_cpu {
namespace {

// Calls that the compiler must not inline: the sanitizers intercept them, and see memory that this file, which they do
// not instrument, reads and writes for the kernel.
void* (*const volatile copy_bytes)(void*, const void*, size_t) = std::memcpy;
void* (*const volatile fill_bytes)(void*, int, size_t) = std::memset;

bool Aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % AsyncCopy::kBytes == 0; }

void Finish(const AsyncCopy& copy) {
  const auto* destination = static_cast<const unsigned char*>(copy.destination);
  Require(std::all_of(destination, destination + AsyncCopy::kBytes, [](unsigned char byte) { return byte == 0xff; }),
          "the destination of a cp.async was written before the wait for it", copy.where);
  if (copy.zero_fill) {
    fill_bytes(copy.destination, 0, AsyncCopy::kBytes);
    return;
  }
  copy_bytes(copy.destination, copy.source, AsyncCopy::kBytes);
  Require(std::memcmp(copy.destination, copy.seen, AsyncCopy::kBytes) == 0,
          "the source of a cp.async changed before the wait for it", copy.where);
}

}  // namespace

void BeginAsyncCopy(void* shared, const void* global, bool zero_fill, const SourceLine& where) {
  Require(Aligned(shared) && Aligned(global), "an address of cp.async is not aligned to its 16 bytes", where);
  RequireShared(shared, AsyncCopy::kBytes, where);
  AsyncCopy copy{shared, global, zero_fill, {}, where};
  if (!zero_fill) copy_bytes(copy.seen, global, AsyncCopy::kBytes);
  fill_bytes(shared, 0xff, AsyncCopy::kBytes);
  ThisBlock().running().open_copies.push_back(copy);
}

void CommitAsyncCopies() {
  BlockThread& thread = ThisBlock().running();
  thread.copy_groups.push_back(std::exchange(thread.open_copies, {}));
}

void WaitForAsyncCopies(unsigned groups_left) {
  auto& groups = ThisBlock().running().copy_groups;
  if (groups.size() <= groups_left) return;
  const auto done = groups.end() - groups_left;
  for (auto group = groups.begin(); group != done; ++group) std::for_each(group->begin(), group->end(), Finish);
  groups.erase(groups.begin(), done);
}

}  // namespace sluice::cuda_on_cpu
