// The CUDA language for a kernel's source (.cu). The same source is compiled twice: by nvcc for the GPU, and by a C++
// compiler of the host, for which tests/cuda_on_cpu runs every thread of a block as a fiber, so that each kernel is
// tested, also under sanitizers, where there is no GPU.
//
// A .cu includes this, ptx.h, other headers of this folder and headers of plain data; nothing else. It may use
// - the qualifiers (__global__, __device__, __host__, __forceinline__, __launch_bounds__, __grid_constant__,
// __restrict__),
//   threadIdx, blockIdx, blockDim, gridDim, the vector types, __half, __nv_bfloat16, __nv_fp8_e4m3 and their functions;
// - __syncthreads (and _count, _and, _or), __syncwarp, __shfl*_sync, __ballot_sync, __any_sync, __all_sync,
//   __match_*_sync, __reduce_*_sync, __threadfence, the atomics of atomics.h, the functions of intrinsics.h,
//   nvcuda::wmma;
// - PTX through ptx.h only.
// It may not use static __shared__, <<<>>>, asm, dynamic parallelism, cooperative groups, textures, __activemask, and
// no block may wait for another: here blocks run one after another.
#pragma once

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstddef>
#include <cstdint>

namespace sluice::cuda {

// Above 48 KB a kernel must be allowed its shared memory first. An error shows in cudaGetLastError after the launch.
template <class... Parameters>
void AllowSharedMemory(void (*kernel)(Parameters...), size_t bytes) {
  if (bytes > (48u << 10))
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <class... Parameters, class... Arguments>
void LaunchDependent(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                     const Arguments&... arguments) {
  AllowSharedMemory(kernel, shared_bytes);
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace sluice::cuda

// Launches `kernel` (the instance of a template in parentheses) with dynamic shared memory; arguments are copied.
// Reports nothing: whoever owns the stream asks cudaGetLastError.
#define SLUICE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)   \
  do {                                                                  \
    ::sluice::cuda::AllowSharedMemory(kernel, shared_bytes);            \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__); \
  } while (0)

// Likewise, and the kernel may begin before the one ahead of it in the stream has ended (programmatic dependent launch,
// sm_90): all that it reads of that one's results it reads after ptx::griddepcontrol_wait().
#define SLUICE_LAUNCH_DEPENDENT(kernel, grid, block, shared_bytes, stream, ...) \
  ::sluice::cuda::LaunchDependent(kernel, grid, block, shared_bytes, stream, __VA_ARGS__)

// Declares `name`, a T& of all the dynamic shared memory that the kernel uses: one struct, the only way to shared
// memory. Once per kernel. The launch gives at least sizeof(T) bytes.
#define SLUICE_SHARED(T, name)                                          \
  extern __shared__ __align__(128) unsigned char sluice_shared_bytes[]; \
  T& name = *reinterpret_cast<T*>(sluice_shared_bytes)

#else

#include "tests/cuda_on_cpu/cuda_on_cpu.h"

#endif
