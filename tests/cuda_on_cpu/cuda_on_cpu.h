// The CUDA language for a C++ compiler of the host: a kernel's source includes this, through
// engine/ops/cuda/kernels/cuda_language.h, where nvcc is not its compiler. README.md says how it works.
//
// CUDA's own headers give the qualifiers (which expand to nothing), the vector types and the 16- and 8-bit
// floating-point types with the device's rounding.
#pragma once

#include <cuda_runtime_api.h>
// The above first: it defines what the others use.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <vector_functions.h>

#include "tests/cuda_on_cpu/atomics.h"
#include "tests/cuda_on_cpu/block_functions.h"
#include "tests/cuda_on_cpu/fail.h"
#include "tests/cuda_on_cpu/intrinsics.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/shared_memory.h"
#include "tests/cuda_on_cpu/thread.h"
#include "tests/cuda_on_cpu/warp_functions.h"
#include "tests/cuda_on_cpu/wmma.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__
#define __shared__ shared_memory_is_declared_with_SLUICE_SHARED_only

#define SLUICE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                            \
  ::sluice::cuda_on_cpu::Launch(::sluice::cuda_on_cpu::SourceLine::current(), kernel, grid, block, shared_bytes, \
                                stream __VA_OPT__(, ) __VA_ARGS__)
#define SLUICE_LAUNCH_DEPENDENT SLUICE_LAUNCH
#define SLUICE_SHARED(T, name) T& name = ::sluice::cuda_on_cpu::SharedStruct<T>()
