// Several workers make parts of one result; whoever arrives last puts them together. No one waits.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/base/native_atomics.h"

namespace sluice {

template <class Atomics = NativeAtomics>
class LastArrival {
 public:
  // Called once by each of `num_parts` workers, after its part has been written. True for one of them, the last, which
  // sees the parts of all. The object is then as new, for another round that begins when something else (a region's end)
  // has ordered it after this one.
  bool Arrive(int32_t num_parts) {
    // Releases this part, and if it is the last acquires the others.
    if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < num_parts) return false;
    num_arrived_.store(0, std::memory_order_relaxed);
    return true;
  }

 private:
  typename Atomics::template Atomic<int32_t> num_arrived_{0};
};

}  // namespace sluice
