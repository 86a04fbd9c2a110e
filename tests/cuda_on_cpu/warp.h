// How the lanes of a warp exchange values: each brings an operand and a place for its result; the last lane to arrive
// computes everybody's result at once, and all go on. Lanes that wait keep their operands on their own stacks, so
// nothing is copied, and work on fragments of the whole warp (mma) is done once, not 32 times.
#pragma once

#include <cstdint>

#include "tests/cuda_on_cpu/fail.h"

namespace sluice::cuda_on_cpu {

inline constexpr uint32_t kAllLanes = 0xffffffffu;

struct WarpOperation {
  uint32_t mask;
  const void* const* operands;  // [32], valid for the lanes of the mask
  void* const* results;         // likewise
  SourceLine where;

  template <class T>
  const T& operand(unsigned lane) const {
    return *static_cast<const T*>(operands[lane]);
  }
  template <class T>
  T& result(unsigned lane) const {
    return *static_cast<T*>(results[lane]);
  }
  bool has(unsigned lane) const { return mask >> lane & 1; }
};

// Fills the results of all lanes in the mask. Called by one of them while the others wait.
using WarpFunction = void (*)(const WarpOperation& operation);

// Waits until every lane in `mask` has called with the same function and mask from the same line. Aborts with a report
// where they do not, or where the mask leaves out the caller or names a lane that has exited.
void MeetInWarp(uint32_t mask, const void* operand, void* result, WarpFunction function, const SourceLine& where);

}  // namespace sluice::cuda_on_cpu
