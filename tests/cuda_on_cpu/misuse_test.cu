#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"
#include "tests/cuda_on_cpu/kernels_of_tests.h"

namespace sluice::cuda_testing {
namespace {

constexpr unsigned kAll = 0xffffffffu;

struct Shared {
  uint4 quads[64];
};

__global__ void NothingKernel() {}

__global__ void BarrierKernel(Misuse misuse) {
  const unsigned warp = threadIdx.x / 32;
  if (misuse == Misuse::kDifferentBarriers) {
    if (warp == 0)
      __syncthreads();
    else
      __syncthreads();
  } else if (misuse == Misuse::kBarrierNobodyElseReaches) {
    if (warp == 0) ptx::barrier_sync(1, 64);
  } else {
    ptx::barrier_sync(1, 40);
  }
}

__global__ void TooLargeKernel(uint32_t* out) {
  SLUICE_SHARED(Shared, shared);
  out[0] = shared.quads[0].x;
}

__global__ void WarpKernel(Misuse misuse, uint32_t* out) {
  const unsigned lane = threadIdx.x;
  unsigned value = lane;
  switch (misuse) {
    case Misuse::kMaskWithoutCaller:
      value = __shfl_sync(0x0000ffffu, value, 0);
      break;
    case Misuse::kMaskWithExitedLane:
      if (lane < 4) return;
      value = __shfl_sync(kAll, value, 8);
      break;
    case Misuse::kExitWhileOthersWait:
      if (lane >= 28) return;
      value = __shfl_sync(kAll, value, 8);
      break;
    case Misuse::kDifferentWarpOperations:
      if (lane % 2 == 0)
        value = __shfl_sync(kAll, value, 0);
      else
        value = __shfl_xor_sync(kAll, value, 1);
      break;
    case Misuse::kDivergentShuffle:
      if (lane < 16) value = __shfl_xor_sync(kAll, value, 1);
      __syncwarp();
      break;
    case Misuse::kShuffleFromOutsideMask:
      if (lane < 16) value = __shfl_xor_sync(0x0000ffffu, value, 16);
      break;
    default:
      value = __shfl_sync(kAll, value, 0, 12);
  }
  if (lane == 31) out[0] = value;
}

__global__ void CopyKernel(Misuse misuse, uint32_t* memory) {
  SLUICE_SHARED(Shared, shared);
  uint32_t* words = &shared.quads[0].x;
  switch (misuse) {
    case Misuse::kCopyMisaligned:
      ptx::cp_async16(words + 1, memory);
      break;
    case Misuse::kCopyNotToShared:
      ptx::cp_async16(memory + 4, memory);
      break;
    case Misuse::kCopyNeverWaitedFor:
      ptx::cp_async16(words, memory);
      ptx::cp_async_commit();
      ptx::cp_async_wait<1>();
      break;
    case Misuse::kCopyNeverCommitted:
      ptx::cp_async16(words, memory);
      ptx::cp_async_wait<0>();
      break;
    case Misuse::kCopyDestinationWritten:
      ptx::cp_async16(words, memory);
      ptx::cp_async_commit();
      words[3] = 5;
      ptx::cp_async_wait<0>();
      break;
    default:
      ptx::cp_async16(words, memory);
      ptx::cp_async_commit();
      memory[2] = 5;
      ptx::cp_async_wait<0>();
  }
}

__global__ void MatrixKernel(Misuse misuse, uint32_t* memory) {
  SLUICE_SHARED(Shared, shared);
  namespace wmma = nvcuda::wmma;
  using Tile = wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major>;
  const unsigned lane = threadIdx.x;
  uint32_t registers[4];
  Tile tile;
  switch (misuse) {
    case Misuse::kMatrixRowMisaligned:
      ptx::ldmatrix_x4(registers, &shared.quads[lane].x + (lane == 9 ? 1 : 0));
      break;
    case Misuse::kMatrixRowNotShared:
      ptx::ldmatrix_x4(registers, memory);
      break;
    case Misuse::kWmmaMisaligned:
      wmma::load_matrix_sync(tile, reinterpret_cast<const __nv_bfloat16*>(&shared.quads[1]), 16);
      break;
    default:
      wmma::load_matrix_sync(tile, reinterpret_cast<const __nv_bfloat16*>(&shared.quads[0]), 20);
  }
}

__global__ void MemoryKernel(Misuse misuse, uint32_t* memory) {
  switch (misuse) {
    case Misuse::kStreamingMisaligned:
      memory[0] = ptx::load_streaming(memory + 2).x;
      break;
    case Misuse::kWritePastTheEnd:
      memory[16] = 1;
      break;
    default:
      memory[-1] = 1;
  }
}

#if !defined(__CUDACC__)
__global__ void LaunchingKernel() { SLUICE_LAUNCH(NothingKernel, dim3(1), dim3(1), 0, nullptr); }
#endif

}  // namespace

void LaunchNothing(Size3 grid, Size3 block, unsigned shared_bytes, Stream stream) {
  SLUICE_LAUNCH(NothingKernel, dim3(grid.x, grid.y, grid.z), dim3(block.x, block.y, block.z), shared_bytes, stream);
}

void LaunchMisuse(Misuse misuse, uint32_t* memory, Stream stream) {
  const dim3 one(1);
  switch (misuse) {
    case Misuse::kDifferentBarriers:
    case Misuse::kBarrierNobodyElseReaches:
    case Misuse::kBarrierOfOddNumber:
      SLUICE_LAUNCH(BarrierKernel, one, dim3(64), 0, stream, misuse);
      break;
    case Misuse::kSharedStructTooLarge:
      SLUICE_LAUNCH(TooLargeKernel, one, one, sizeof(Shared) - 1, stream, memory);
      break;
    case Misuse::kMaskWithoutCaller:
    case Misuse::kMaskWithExitedLane:
    case Misuse::kExitWhileOthersWait:
    case Misuse::kDifferentWarpOperations:
    case Misuse::kDivergentShuffle:
    case Misuse::kShuffleFromOutsideMask:
    case Misuse::kShuffleWidth:
      SLUICE_LAUNCH(WarpKernel, one, dim3(32), 0, stream, misuse, memory);
      break;
    case Misuse::kCopyMisaligned:
    case Misuse::kCopyNotToShared:
    case Misuse::kCopyNeverWaitedFor:
    case Misuse::kCopyNeverCommitted:
    case Misuse::kCopyDestinationWritten:
    case Misuse::kCopySourceWritten:
      SLUICE_LAUNCH(CopyKernel, one, one, sizeof(Shared), stream, misuse, memory);
      break;
    case Misuse::kMatrixRowMisaligned:
    case Misuse::kMatrixRowNotShared:
    case Misuse::kWmmaMisaligned:
    case Misuse::kWmmaStride:
      SLUICE_LAUNCH(MatrixKernel, one, dim3(32), sizeof(Shared), stream, misuse, memory);
      break;
    case Misuse::kStreamingMisaligned:
    case Misuse::kWritePastTheEnd:
    case Misuse::kWriteBeforeTheStart:
      SLUICE_LAUNCH(MemoryKernel, one, one, 0, stream, misuse, memory);
      break;
    case Misuse::kLaunchFromKernel:
#if !defined(__CUDACC__)
      SLUICE_LAUNCH(LaunchingKernel, one, one, 0, stream);
#endif
      break;
  }
}

}  // namespace sluice::cuda_testing
