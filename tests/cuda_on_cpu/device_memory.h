// Memory that stands for the device's: what cudaMalloc gives, aligned to 256 bytes, and of exactly the size asked for.
// It is filled with 0xff, which is NaN in every floating-point type and -1 in every integer, and lies between guards:
// AddressSanitizer reports an access beyond its ends at once; without it a write there is found after the launch.
// Thread-safe.
#pragma once

#include <cstddef>

#include "tests/cuda_on_cpu/fail.h"

namespace sluice::cuda_on_cpu {

inline constexpr size_t kDeviceAlignment = 256;

// Never null; of 0 bytes too.
void* AllocateDevice(size_t bytes);
void FreeDevice(void* start);  // what AllocateDevice gave, or null

// What nothing may read before it is written, again.
void FillWithNan(void* start, size_t bytes);

// Aborts if a guard of any allocation has been written.
void CheckDeviceMemory(const SourceLine& where);

}  // namespace sluice::cuda_on_cpu
