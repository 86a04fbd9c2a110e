// CUDA's warp functions: shuffles, votes, reductions, matches. A lane that reads another lane outside the mask, which
// is undefined on the device, is reported. __activemask is not here: what it gives is no promise.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/cuda_on_cpu/thread.h"
#include "tests/cuda_on_cpu/warp.h"

namespace sluice::cuda_on_cpu {

template <class T>
struct ShuffleOperand {
  T value;
  unsigned source;  // a lane of the warp
};

template <class T>
void ComputeShuffle(const WarpOperation& warp) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!warp.has(lane)) continue;
    const unsigned source = warp.operand<ShuffleOperand<T>>(lane).source;
    Require(warp.has(source), "a shuffle reads a lane outside its mask", warp.where);
    warp.result<T>(lane) = warp.operand<ShuffleOperand<T>>(source).value;
  }
}

template <class T>
T Shuffle(unsigned mask, const T& value, unsigned source, const SourceLine& where) {
  static_assert(std::is_trivially_copyable_v<T>);
  const ShuffleOperand<T> operand{value, source};
  T result;
  MeetInWarp(mask, &operand, &result, &ComputeShuffle<T>, where);
  return result;
}

inline unsigned Lane() { return current->lane; }

inline void RequireWidth(int width, const SourceLine& where) {
  Require(width > 0 && width <= 32 && (width & (width - 1)) == 0, "a shuffle's width is not a power of two up to 32",
          where);
}

// Every lane gets Combine over the operands of the mask, lanes ascending.
template <class T, class Combine>
void ComputeReduction(const WarpOperation& warp) {
  unsigned lane = static_cast<unsigned>(std::countr_zero(warp.mask));
  T total = warp.operand<T>(lane);
  while (++lane < 32)
    if (warp.has(lane)) total = Combine()(total, warp.operand<T>(lane));
  for (lane = 0; lane < 32; ++lane)
    if (warp.has(lane)) warp.result<T>(lane) = total;
}

template <class Combine, class T>
T Reduce(unsigned mask, T value, const SourceLine& where) {
  T result;
  MeetInWarp(mask, &value, &result, &ComputeReduction<T, Combine>, where);
  return result;
}

inline void ComputeBallot(const WarpOperation& warp) {
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (warp.has(lane) && warp.operand<int>(lane) != 0) ballot |= 1u << lane;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (warp.has(lane)) warp.result<unsigned>(lane) = ballot;
}

// The lanes of the mask whose bits equal the lane's own.
template <class T>
void ComputeMatch(const WarpOperation& warp) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!warp.has(lane)) continue;
    unsigned same = 0;
    for (unsigned other = 0; other < 32; ++other)
      if (warp.has(other) && std::memcmp(warp.operands[lane], warp.operands[other], sizeof(T)) == 0)
        same |= 1u << other;
    warp.result<unsigned>(lane) = same;
  }
}

struct Add {
  auto operator()(auto a, auto b) const { return a + b; }
};
struct Min {
  auto operator()(auto a, auto b) const { return b < a ? b : a; }
};
struct Max {
  auto operator()(auto a, auto b) const { return a < b ? b : a; }
};
struct And {
  auto operator()(auto a, auto b) const { return a & b; }
};
struct Or {
  auto operator()(auto a, auto b) const { return a | b; }
};
struct Xor {
  auto operator()(auto a, auto b) const { return a ^ b; }
};

}  // namespace sluice::cuda_on_cpu

// Orders memory among its lanes, as on the device; other warp functions meet but promise no order of memory there. Here
// they order it too.
inline void __syncwarp(unsigned mask = 0xffffffffu, SLUICE_HERE) {
  ::sluice::cuda_on_cpu::MeetInWarp(mask, nullptr, nullptr, nullptr, here);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SLUICE_HERE) {
  using namespace ::sluice::cuda_on_cpu;
  RequireWidth(width, here);
  const unsigned within = static_cast<unsigned>(width - 1);
  return Shuffle(mask, value, (Lane() & ~within) | (static_cast<unsigned>(source) & within), here);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, SLUICE_HERE) {
  using namespace ::sluice::cuda_on_cpu;
  RequireWidth(width, here);
  const unsigned lane = Lane(), segment = lane & ~static_cast<unsigned>(width - 1);
  const unsigned source = (lane ^ static_cast<unsigned>(lane_mask)) & 31u;
  // A lane of an earlier segment may be read, one of a later segment may not.
  return Shuffle(mask, value, source < segment + static_cast<unsigned>(width) ? source : lane, here);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SLUICE_HERE) {
  using namespace ::sluice::cuda_on_cpu;
  RequireWidth(width, here);
  const unsigned lane = Lane(), within = lane & static_cast<unsigned>(width - 1);
  return Shuffle(mask, value, within < delta ? lane : lane - delta, here);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SLUICE_HERE) {
  using namespace ::sluice::cuda_on_cpu;
  RequireWidth(width, here);
  const unsigned lane = Lane(), within = lane & static_cast<unsigned>(width - 1);
  return Shuffle(mask, value, within + delta < static_cast<unsigned>(width) ? lane + delta : lane, here);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SLUICE_HERE) {
  unsigned result = 0;
  ::sluice::cuda_on_cpu::MeetInWarp(mask, &predicate, &result, &::sluice::cuda_on_cpu::ComputeBallot, here);
  return result;
}
inline int __any_sync(unsigned mask, int predicate, SLUICE_HERE) { return __ballot_sync(mask, predicate, here) != 0; }
inline int __all_sync(unsigned mask, int predicate, SLUICE_HERE) {
  return __ballot_sync(mask, predicate, here) == mask;
}

template <class T>
unsigned __match_any_sync(unsigned mask, T value, SLUICE_HERE) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  unsigned result = 0;
  ::sluice::cuda_on_cpu::MeetInWarp(mask, &value, &result, &::sluice::cuda_on_cpu::ComputeMatch<T>, here);
  return result;
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all_equal, SLUICE_HERE) {
  *all_equal = __match_any_sync(mask, value, here) == mask;
  return *all_equal ? mask : 0;
}

// 32-bit integers, as the device has them.
#define SLUICE_REDUCE(name, Combine, T)                                                      \
  inline T __reduce_##name##_sync(unsigned mask, T value, SLUICE_HERE) {                     \
    return ::sluice::cuda_on_cpu::Reduce<::sluice::cuda_on_cpu::Combine>(mask, value, here); \
  }
SLUICE_REDUCE(add, Add, unsigned)
SLUICE_REDUCE(min, Min, unsigned)
SLUICE_REDUCE(min, Min, int)
SLUICE_REDUCE(max, Max, unsigned)
SLUICE_REDUCE(max, Max, int)
SLUICE_REDUCE(and, And, unsigned)
SLUICE_REDUCE(or, Or, unsigned)
SLUICE_REDUCE(xor, Xor, unsigned)
#undef SLUICE_REDUCE
inline int __reduce_add_sync(unsigned mask, int value, SLUICE_HERE) {  // wraps, which int must not
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value), here));
}
