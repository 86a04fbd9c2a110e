// The CUDA thread that is running now, and the variables that a kernel reads about itself.
#pragma once

#include <vector_types.h>

namespace sluice::cuda_on_cpu {

struct Thread {
  uint3 thread_index;
  uint3 block_index;
  dim3 block_size;
  dim3 grid_size;
  unsigned linear = 0;  // within the block: x fastest, then y, then z
  unsigned warp = 0;    // linear / 32
  unsigned lane = 0;    // linear % 32
};

// Null outside a launch. Of one host thread: each may run a launch of its own. constinit spares a call at each use.
extern constinit thread_local Thread* current;

}  // namespace sluice::cuda_on_cpu

#define threadIdx (::sluice::cuda_on_cpu::current->thread_index)
#define blockIdx (::sluice::cuda_on_cpu::current->block_index)
#define blockDim (::sluice::cuda_on_cpu::current->block_size)
#define gridDim (::sluice::cuda_on_cpu::current->grid_size)
inline constexpr int warpSize = 32;
