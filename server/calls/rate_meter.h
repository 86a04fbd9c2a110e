// How many per second, over the last ten seconds.
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/mutex.h"

namespace sluice {

// Counts in slots of a quarter second. Thread-safe.
class RateMeter {
 public:
  // `now_ns`: Clock, not decreasing by more than a moment.
  void Add(int64_t now_ns, int64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  double PerSecond(int64_t now_ns) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr int64_t kSlotNs = 250'000'000;
  static constexpr int64_t kNumSlots = 40;

  struct Slot {
    int64_t number = -1;  // now_ns / kSlotNs
    int64_t count = 0;
  };

  mutable Mutex mutex_;
  std::array<Slot, kNumSlots> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
