#include "server/calls/rate_meter.h"

namespace sluice {

void RateMeter::Add(int64_t now_ns, int64_t count) {
  const int64_t number = now_ns / kSlotNs;
  MutexLock lock(&mutex_);
  Slot& slot = slots_[size_t(number % kNumSlots)];
  if (slot.number != number) slot = {.number = number, .count = 0};
  slot.count += count;
}

double RateMeter::PerSecond(int64_t now_ns) const {
  const int64_t newest = now_ns / kSlotNs;
  int64_t total = 0;
  MutexLock lock(&mutex_);
  for (const Slot& slot : slots_) {
    if (slot.number > newest - kNumSlots && slot.number <= newest) total += slot.count;
  }
  return double(total) * 1e9 / double(kNumSlots * kSlotNs);
}

}  // namespace sluice
