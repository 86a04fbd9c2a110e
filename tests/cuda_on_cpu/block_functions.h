// CUDA's functions of the whole block: barriers.
#pragma once

#include "tests/cuda_on_cpu/fail.h"

namespace sluice::cuda_on_cpu {

// Waits until `threads` (0: all that have not exited) are at barrier `id`; how many came with a true predicate.
unsigned MeetAtBarrier(unsigned id, unsigned threads, bool predicate, const SourceLine& where);

// All that the caller saw or did happened before what threads do after a later Fence of theirs.
void Fence();

}  // namespace sluice::cuda_on_cpu

inline void __syncthreads(SLUICE_HERE) { ::sluice::cuda_on_cpu::MeetAtBarrier(0, 0, false, here); }
inline int __syncthreads_count(int predicate, SLUICE_HERE) {
  return static_cast<int>(::sluice::cuda_on_cpu::MeetAtBarrier(0, 0, predicate != 0, here));
}
inline int __syncthreads_or(int predicate, SLUICE_HERE) {
  return ::sluice::cuda_on_cpu::MeetAtBarrier(0, 0, predicate != 0, here) != 0;
}
inline int __syncthreads_and(int predicate, SLUICE_HERE) {
  return ::sluice::cuda_on_cpu::MeetAtBarrier(0, 0, predicate == 0, here) == 0;
}
inline void __threadfence() { ::sluice::cuda_on_cpu::Fence(); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
