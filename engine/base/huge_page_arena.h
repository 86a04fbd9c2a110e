// Memory for weights and caches: large, zeroed, on huge pages where the system allows (100 MB are 25,000 small pages,
// which is more than a TLB holds).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/base/mutex.h"

namespace sluice {

// Hands out pieces of 2 MiB aligned chunks one after the other, so that small pieces share huge pages. Memory that no
// piece touches is never made resident. Thread-safe.
class HugePageArena {
 public:
  // New chunks have `chunk_bytes`; a larger piece gets a chunk of its own.
  explicit HugePageArena(size_t chunk_bytes = size_t{32} << 20);
  HugePageArena(const HugePageArena&) = delete;
  HugePageArena& operator=(const HugePageArena&) = delete;

  // `bytes` zeroed bytes, 64-byte aligned. The piece keeps its chunk alive, also after the arena is gone; a chunk is
  // returned to the system when its last piece is. nullptr when the system has no memory left.
  std::shared_ptr<uint8_t> Allocate(size_t bytes);

 private:
  const size_t chunk_bytes_;
  Mutex mutex_;
  std::shared_ptr<uint8_t> chunk_ ABSL_GUARDED_BY(mutex_);
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
