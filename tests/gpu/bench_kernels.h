// Kernels that measure the device itself.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda_testing {

// Reads `bytes`, a multiple of 16, and leaves `sink` (4 bytes) as it is.
void LaunchRead(const void* data, int64_t bytes, uint32_t* sink, cuda::Stream stream);
// to = from, `bytes` a multiple of 16.
void LaunchCopy(const void* from, void* to, int64_t bytes, cuda::Stream stream);
// Pairs of random finite 16-bit values, small as bf16 and about 1 as f16; `bytes` a multiple of 4.
void LaunchFill(void* data, int64_t bytes, uint32_t seed, cuda::Stream stream);

// A kernel that does nothing; `dependent`: it may begin before the one ahead of it has ended, for which it then waits.
void LaunchNothing(int32_t blocks, int32_t threads, bool dependent, cuda::Stream stream);

}  // namespace sluice::cuda_testing
