#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"
#include "tests/gpu/bench_kernels.h"

namespace sluice::cuda_testing {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;  // of 16 bytes, in flight per thread

// A block takes kLoads * kThreads neighbouring pieces of 16 bytes.
__device__ __forceinline__ int64_t Piece(int load) {
  return (int64_t{blockIdx.x} * kLoads + load) * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads) ReadKernel(const uint4* data, int64_t count, uint32_t* sink) {
  uint4 v[kLoads];
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    v[j] = Piece(j) < count ? ptx::load_streaming(data + Piece(j)) : make_uint4(0, 0, 0, 0);
  }
  uint32_t all = 0;
#pragma unroll
  for (int j = 0; j < kLoads; ++j) all |= v[j].x | v[j].y | v[j].z | v[j].w;
  // Never of data that LaunchFill made: each of its words has bits that are 0.
  if (all == 0xffffffffu && *sink == 0) *sink = all;
}

__global__ void __launch_bounds__(kThreads) CopyKernel(const uint4* from, uint4* to, int64_t count) {
  uint4 v[kLoads];
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    if (Piece(j) < count) v[j] = ptx::load_streaming(from + Piece(j));
  }
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    if (Piece(j) < count) to[Piece(j)] = v[j];
  }
}

__global__ void __launch_bounds__(kThreads) FillKernel(uint32_t* data, int64_t count, uint32_t seed) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  uint32_t x = (static_cast<uint32_t>(i) ^ seed) * 0x9e3779b9u + static_cast<uint32_t>(i >> 32);
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x ^= x >> 13;
  data[i] = (x & 0x807f807fu) | 0x3c803c80u;  // +- 2^-6 to 2^-5 as bf16
}

__global__ void NothingKernel(int) {}

__global__ void DependentKernel(int) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
}

dim3 BlocksFor(int64_t pieces, int64_t pieces_of_a_block) {
  return dim3(static_cast<unsigned>((pieces + pieces_of_a_block - 1) / pieces_of_a_block));
}

}  // namespace

void LaunchRead(const void* data, int64_t bytes, uint32_t* sink, cuda::Stream stream) {
  SLUICE_LAUNCH(ReadKernel, BlocksFor(bytes / 16, kLoads * kThreads), dim3(kThreads), 0, stream,
                static_cast<const uint4*>(data), bytes / 16, sink);
}

void LaunchCopy(const void* from, void* to, int64_t bytes, cuda::Stream stream) {
  SLUICE_LAUNCH(CopyKernel, BlocksFor(bytes / 16, kLoads * kThreads), dim3(kThreads), 0, stream,
                static_cast<const uint4*>(from), static_cast<uint4*>(to), bytes / 16);
}

void LaunchFill(void* data, int64_t bytes, uint32_t seed, cuda::Stream stream) {
  SLUICE_LAUNCH(FillKernel, BlocksFor(bytes / 4, kThreads), dim3(kThreads), 0, stream, static_cast<uint32_t*>(data),
                bytes / 4, seed);
}

void LaunchNothing(int32_t blocks, int32_t threads, bool dependent, cuda::Stream stream) {
  const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
  if (dependent) {
    SLUICE_LAUNCH_DEPENDENT(DependentKernel, grid, block, 0, stream, 0);
  } else {
    SLUICE_LAUNCH(NothingKernel, grid, block, 0, stream, 0);
  }
}

}  // namespace sluice::cuda_testing
