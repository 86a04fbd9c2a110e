// Which tokens survive top_k and top_p: the k-th largest value, and the value and token at which a mass is reached,
// found by counting, without sorting. All that is summed is an integer, so that the order in which threads add does not
// matter. Equal values are parted by id where the rule says so.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/reduce.cuh"

namespace sluice::cuda {

inline constexpr int kFilterWarps = 16;
inline constexpr int kFilterThreads = kFilterWarps * kWarpLanes;
inline constexpr int kFilterBins = 4 * kFilterThreads;
inline constexpr int kListSize = 2048;

using Mass = unsigned long long;
inline constexpr float kMassOfLargest = 1099511627776.0f;  // 2^40: 2^20 tokens fit

struct FilterShared {
  uint32_t low_bins[kFilterBins], high_bins[kFilterBins];  // halves of sums: 32-bit atomics of shared memory are fast
  Mass warp_sums[kFilterWarps];
  Mass before;  // result of FindBin
  int32_t bin;
  int32_t list_size;
  float list_values[kListSize];
  int32_t list_tokens[kListSize];
};

// Bits of a float such that larger floats have larger ones. -0 counts as 0.
__device__ __forceinline__ uint32_t OrderedBits(float value) {
  const uint32_t bits = __float_as_uint(__fadd_rn(value, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float FromOrderedBits(uint32_t bits) {
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// What is left of the tokens of a row: all, or a list of those that matter.
struct Items {
  const float* values;
  const int32_t* tokens;  // null: item i is token i
  int32_t size;
  float divisor;  // of the values
  bool aligned;   // the values are, to 16 bytes, and `size` is a multiple of 4
};

// Tokens that stay: those above `value`, and of those equal to it the ones up to `token`.
struct Cut {
  float value;
  int32_t token = INT32_MAX;
  __device__ bool Keeps(float v, int32_t t) const { return v > value || (v == value && t <= token); }
};

// Calls f(value, token) for each of a row's values, from all threads of the block, with four loads of 16 bytes under
// way.
template <class F>
__device__ __forceinline__ void ForRow(const float* row, int32_t size, bool aligned, F&& f) {
  constexpr int kLoads = 2;
  for (int32_t first = threadIdx.x * 4; first < size; first += kFilterThreads * 4 * kLoads) {
    float4 fours[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) fours[i] = LoadFour(row, first + i * kFilterThreads * 4, size, aligned);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int32_t token = first + i * kFilterThreads * 4;
      const float values[4] = {fours[i].x, fours[i].y, fours[i].z, fours[i].w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (token + k < size) f(values[k], token + k);
      }
    }
  }
}

// Likewise for each item that the cut keeps.
template <class F>
__device__ __forceinline__ void ForKept(const Items& items, const Cut& cut, F&& f) {
  if (items.tokens == nullptr) {
    return ForRow(items.values, items.size, items.aligned, [&](float undivided, int32_t token) {
      const float value = __fdiv_rn(undivided, items.divisor);
      if (cut.Keeps(value, token)) f(value, token);
    });
  }
  for (int32_t i = threadIdx.x; i < items.size; i += kFilterThreads) {
    const float value = items.values[i];
    if (cut.Keeps(value, items.tokens[i])) f(value, items.tokens[i]);
  }
}

// Bins of 1/64 nat below the largest value, for a first look: what lies further than 32 nats away shares the last.
// Values in the same order are in bins in that order.
__device__ __forceinline__ int32_t DistanceBin(float value, float max) {
  return int32_t(fminf((max - value) * 64, float(kFilterBins - 1)));
}

struct OfCount {
  __device__ Mass operator()(float) const { return 1; }
};
struct OfMass {
  float max;
  __device__ Mass operator()(float value) const { return Mass(expf(value - max) * kMassOfLargest); }
};

__device__ inline void ClearBins(FilterShared& shared) {
  for (int32_t i = threadIdx.x; i < kFilterBins; i += kFilterThreads) shared.low_bins[i] = shared.high_bins[i] = 0;
  __syncthreads();
}

// Whoever makes the low half overflow carries.
__device__ __forceinline__ void AddToBin(FilterShared& shared, int32_t bin, Mass weight) {
  const uint32_t low = uint32_t(weight), old = atomicAdd(&shared.low_bins[bin], low);
  const uint32_t high = uint32_t(weight >> 32) + (old + low < old);
  if (high != 0) atomicAdd(&shared.high_bins[bin], high);
}

__device__ __forceinline__ Mass Bin(const FilterShared& shared, int32_t bin) {
  return Mass(shared.high_bins[bin]) << 32 | shared.low_bins[bin];
}

// Sum of all bins.
__device__ inline Mass TotalOfBins(FilterShared& shared) {
  Mass sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += Bin(shared, int32_t(threadIdx.x) * 4 + i);
  return BlockReduce(sum, Plus(), shared.warp_sums);
}

// shared.bin: the first, ascending, with which the sum reaches `needed`; shared.before: the sum before it. REQUIRES:
// the sum of all is at least `needed` > 0.
__device__ inline void FindBin(Mass needed, FilterShared& shared) {
  Mass own[4], sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += own[i] = Bin(shared, int32_t(threadIdx.x) * 4 + i);
  const int32_t lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
  Mass before = sum;
#pragma unroll
  for (int delta = 1; delta < kWarpLanes; delta *= 2) {
    const Mass other = __shfl_up_sync(kAllLanes, before, unsigned(delta));
    if (lane >= delta) before += other;
  }
  if (lane == kWarpLanes - 1) shared.warp_sums[warp] = before;
  before -= sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += shared.warp_sums[w];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (before < needed && needed <= before + own[i]) {
      shared.bin = int32_t(threadIdx.x) * 4 + i;
      shared.before = before;
    }
    before += own[i];
  }
  __syncthreads();
}

// The 32-bit key at which the sum of weights, taken by ascending key, reaches `needed`, and what is left of `needed`
// before it, by its digits of 11, 11 and 10 bits. for_each(f) calls f(key, weight) for every item, from all threads.
struct KeyFound {
  uint32_t key;
  Mass needed, at_key;
};
template <class ForEach>
__device__ inline KeyFound FindKey(Mass needed, FilterShared& shared, ForEach&& for_each) {
  KeyFound found = {0, needed, 0};
  for (int known = 0; known < 32; known += 11) {
    const int digit = min(11, 32 - known), shift = 32 - known - digit;
    ClearBins(shared);
    for_each([&](uint32_t key, Mass weight) {
      if (known > 0 && key >> (32 - known) != found.key >> (32 - known)) return;
      AddToBin(shared, int32_t(key >> shift & ((1u << digit) - 1)), weight);
    });
    __syncthreads();
    FindBin(found.needed, shared);
    found.key |= uint32_t(shared.bin) << shift;
    found.needed -= shared.before;
    found.at_key = Bin(shared, shared.bin);
    __syncthreads();
  }
  return found;
}

// Narrows `cut` to the largest items whose weights together reach needed_of(total); no change if all do not. kWithTies:
// all items equal to the last stay; otherwise those of lower id first. `items` becomes a list if what remains fits one.
template <bool kWithTies, class Weight, class NeededOf>
__device__ inline void Narrow(float max, Weight weight, NeededOf needed_of, FilterShared& shared, Items& items,
                              Cut& cut) {
  ClearBins(shared);
  ForKept(items, cut, [&](float value, int32_t) { AddToBin(shared, DistanceBin(value, max), weight(value)); });
  __syncthreads();
  const Mass total = TotalOfBins(shared), needed = needed_of(total);
  if (needed > total) return;
  FindBin(needed, shared);
  const int32_t last_bin = shared.bin;
  const Mass before = shared.before;

  if (items.tokens == nullptr) {
    if (threadIdx.x == 0) shared.list_size = 0;
    __syncthreads();
    ForKept(items, cut, [&](float value, int32_t token) {
      if (DistanceBin(value, max) > last_bin) return;
      const int32_t at = atomicAdd(&shared.list_size, 1);
      if (at >= kListSize) return;
      shared.list_values[at] = value;
      shared.list_tokens[at] = token;
    });
    __syncthreads();
    if (shared.list_size <= kListSize) items = {shared.list_values, shared.list_tokens, shared.list_size, 1, false};
  }

  // Within the bin by value, then, where some of equal value must go, by id.
  const KeyFound by_value = FindKey(needed - before, shared, [&](auto&& f) {
    ForKept(items, cut, [&](float value, int32_t) {
      if (DistanceBin(value, max) == last_bin) f(~OrderedBits(value), weight(value));
    });
  });
  Cut narrowed = {FromOrderedBits(~by_value.key)};
  if (!kWithTies) {
    const Mass each = weight(narrowed.value), count = (by_value.needed + each - 1) / each;
    if (count * each < by_value.at_key) {
      const KeyFound by_token = FindKey(count, shared, [&](auto&& f) {
        ForKept(items, cut, [&](float value, int32_t token) {
          if (value == narrowed.value) f(uint32_t(token), Mass{1});
        });
      });
      narrowed.token = int32_t(by_token.key);
    }
  }
  cut = narrowed;
}

}  // namespace sluice::cuda
