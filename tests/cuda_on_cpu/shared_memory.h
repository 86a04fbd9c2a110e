// The dynamic shared memory of the running block: as many bytes as the launch asked for, filled with NaN when the block
// starts. AddressSanitizer sees its end.
#pragma once

#include <cstddef>

#include "tests/cuda_on_cpu/fail.h"

namespace sluice::cuda_on_cpu {

inline constexpr size_t kSharedAlignment = 128;
inline constexpr size_t kMaxSharedBytes = 227 << 10;  // of a block on sm_90

// Its start. Aborts if the launch gave fewer than `bytes`.
void* SharedMemory(size_t bytes, const SourceLine& where);

template <class T>
T& SharedStruct(SourceLine where = SourceLine::current()) {
  static_assert(alignof(T) <= kSharedAlignment);
  return *static_cast<T*>(SharedMemory(sizeof(T), where));
}

// Aborts unless all of [start, start + bytes) lies in it.
void RequireShared(const void* start, size_t bytes, const SourceLine& where);

// Of the launcher. Begin: for the next block of a launch that gives `bytes`. End: after the last.
void BeginSharedMemory(size_t bytes);
void EndSharedMemory();

}  // namespace sluice::cuda_on_cpu
