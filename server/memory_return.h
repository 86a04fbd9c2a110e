// Gives memory that has been freed back to the system. The C library keeps what it has freed for the next allocation,
// without a limit: after a burst of calls hundreds of megabytes may stay resident that nothing uses.
#pragma once

#include <cstddef>

namespace sluice {

// Bytes that are free in the allocator's heaps, resident or not; 0 if the C library cannot tell (not glibc).
size_t FreeHeapBytes();

// Decides when it pays: giving back and faulting in again what the next burst needs costs both time, so memory must have
// been free for a while. What is free stays free when it has been given back, so what tells is that the process has grown
// since. One thread.
class MemoryReturn {
 public:
  static constexpr size_t kWorthwhileBytes = 32 << 20;
  static constexpr int kLooks = 3;  // in a row at which so much was free

  // Every second or so, with FreeHeapBytes() and ResidentBytes() (process_stats.h). True: now.
  bool Due(size_t free_bytes, size_t resident_bytes);

 private:
  int looks_ = 0;
  bool just_returned_ = true;
  size_t least_resident_bytes_ = 0;  // since memory was given back
};

// Takes milliseconds for each 100 MiB, in which threads whose heap it is may wait.
void ReturnFreeHeap();

}  // namespace sluice
