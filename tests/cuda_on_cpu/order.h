// In which order the threads of a block, and the blocks of a grid, run. A kernel that depends on it is wrong.
#pragma once

#include <cstdint>

namespace sluice::cuda_on_cpu {

enum class ThreadOrder { kForward, kReverse, kRandom };

// For launches by this host thread from now on. Initially from the environment: CUDA_ON_CPU_ORDER is forward (also when
// unset), reverse or random, CUDA_ON_CPU_SEED a number.
void SetThreadOrder(ThreadOrder order, uint64_t seed = 1);

}  // namespace sluice::cuda_on_cpu
