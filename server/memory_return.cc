#include "server/memory_return.h"

#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sluice {

size_t FreeHeapBytes() {
#ifdef __GLIBC__
  return mallinfo2().fordblks;
#else
  return 0;
#endif
}

bool MemoryReturn::Due(size_t free_bytes, size_t resident_bytes) {
  if (std::exchange(just_returned_, false) || resident_bytes < least_resident_bytes_) {
    least_resident_bytes_ = resident_bytes;
  }
  const bool worthwhile =
      free_bytes >= kWorthwhileBytes && resident_bytes - least_resident_bytes_ >= kWorthwhileBytes;
  looks_ = worthwhile ? looks_ + 1 : 0;
  if (looks_ < kLooks) return false;
  looks_ = 0;
  just_returned_ = true;
  return true;
}

void ReturnFreeHeap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace sluice
