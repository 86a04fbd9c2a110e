#include "tests/cuda_on_cpu/async_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/shared_memory.h"

namespace sluice::cuda_on_cpu {
namespace {

// Calls that the compiler must not inline: the sanitizers intercept them, and so see the memory that this file, which
// they do not instrument, reads and writes for the kernel.
void* (*const volatile copy_bytes)(void*, const void*, size_t) = std::memcpy;
void* (*const volatile fill_bytes)(void*, int, size_t) = std::memset;

}  // namespace

void AsyncCopies::Begin(void* shared, const void* global, bool zero_fill, const SourceLine& where) {
  const auto aligned = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % Copy::kBytes == 0; };
  Require(aligned(shared) && aligned(global), "an address of cp.async is not aligned to its 16 bytes", where);
  RequireShared(shared, Copy::kBytes, where);
  Copy& copy = copies_.emplace_back(Copy{shared, global, zero_fill, {}, where});
  if (!zero_fill) copy_bytes(copy.seen, global, Copy::kBytes);
  fill_bytes(shared, 0xff, Copy::kBytes);
}

void AsyncCopies::Commit() {
  groups_.push_back(copies_.size() - committed_);
  committed_ = copies_.size();
}

void AsyncCopies::Wait(size_t groups_left) {
  if (groups_.size() <= groups_left) return;
  const auto last_group = groups_.end() - static_cast<ptrdiff_t>(groups_left);
  size_t done = 0;
  for (auto group = groups_.begin(); group != last_group; ++group) done += *group;
  const auto last = copies_.begin() + static_cast<ptrdiff_t>(done);
  std::for_each(copies_.begin(), last, Finish);
  copies_.erase(copies_.begin(), last);
  groups_.erase(groups_.begin(), last_group);
  committed_ -= done;
}

void AsyncCopies::Finish(const Copy& copy) {
  const auto* destination = static_cast<const unsigned char*>(copy.destination);
  Require(std::all_of(destination, destination + Copy::kBytes, [](unsigned char byte) { return byte == 0xff; }),
          "the destination of a cp.async was written before the wait for it", copy.where);
  if (copy.zero_fill) {
    fill_bytes(copy.destination, 0, Copy::kBytes);
    return;
  }
  copy_bytes(copy.destination, copy.source, Copy::kBytes);
  Require(std::memcmp(copy.destination, copy.seen, Copy::kBytes) == 0,
          "the source of a cp.async changed before the wait for it", copy.where);
}

void AsyncCopies::RequireNone() const {
  if (!copies_.empty()) Fail("a thread exits without waiting for its cp.async", copies_.front().where);
}

void BeginAsyncCopy(void* shared, const void* global, bool zero_fill, const SourceLine& where) {
  ThisBlock().running().copies.Begin(shared, global, zero_fill, where);
}
void CommitAsyncCopies() { ThisBlock().running().copies.Commit(); }
void WaitForAsyncCopies(size_t groups_left) { ThisBlock().running().copies.Wait(groups_left); }

}  // namespace sluice::cuda_on_cpu
