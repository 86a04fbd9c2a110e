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

// The bytes themselves.
class SharedArena {
 public:
  SharedArena() = default;
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // For the next block: `bytes` of NaN.
  void Begin(size_t bytes);

  unsigned char* start() const { return start_; }
  size_t bytes() const { return bytes_; }

 private:
  unsigned char* start_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice::cuda_on_cpu
