// Launchers of the kernels that test the emulation itself. Pointers are to device memory.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace sluice::cuda_testing {

using Stream = CUstream_st*;

struct Size3 {
  unsigned x = 1, y = 1, z = 1;
};

// place[i] of the thread that is i-th in the grid, blocks first: {threadIdx, blockIdx, blockDim, gridDim}, 12 numbers.
void LaunchPlaces(unsigned* places, Size3 grid, Size3 block, Stream stream);
// turns[i] = how many threads of the grid ran before the i-th; `counter` starts at 0.
void LaunchTurns(unsigned* turns, unsigned* counter, unsigned blocks, unsigned threads, Stream stream);
// The number of bytes of shared memory, `bytes` in all, that are not 0xff when a block starts; it leaves 0 there.
void LaunchSharedAtStart(unsigned* not_nan, unsigned blocks, unsigned bytes, Stream stream);
// out[i] = value, through a launch whose argument is an expression.
void LaunchFill(int* out, int num, int* evaluations, Stream stream);

// Each block reverses its 256 values, `rounds` times over, through shared memory.
void LaunchReverse(int* values, int blocks, int rounds, Stream stream);
// out[5 t]: __syncthreads_count, _and, _or of predicate[t]; then _and of all true, _or of all false.
void LaunchBarrierVotes(int* out, const int* predicates, int threads, Stream stream);
// Threads from `stay` on exit at once; the others sum `stay` values over a barrier.
void LaunchEarlyExit(int* sum, int threads, int stay, Stream stream);
// 128 threads: the two halves run different numbers of rounds over barriers of their own.
void LaunchNamedBarriers(int* out, Stream stream);

// Each of 64 threads: out[8 t ..]: the four shuffles of its value with width 32, then with width 8.
void LaunchShuffles(int* out, const int* values, int source, int delta, Stream stream);
void LaunchShufflesOf8Bytes(double* out, const double* values, Stream stream);
// The lower and the upper half warp sum their values apart, the upper one twice over.
void LaunchHalfWarps(int* out, const int* values, Stream stream);
// One warp, lanes in `mask` take part: out[12 t ..]: ballot, any, all, reduce add/min/max/and/or/xor, match any, match
// all.
void LaunchVotes(unsigned* out, const unsigned* values, unsigned mask, Stream stream);
// Lanes pass a value around through shared memory, with __syncwarp between.
void LaunchSyncWarp(int* out, Stream stream);

// out[0..8] starts as given; every one of blocks * 64 threads adds, subtracts, ... its number.
void LaunchAtomics(int* out, float* sum, unsigned blocks, Stream stream);

// partials[64 blocks], *done 0: the last block to come sums what the others have written.
void LaunchLastBlock(int* sum, int* partials, int* done, unsigned blocks, Stream stream);

// out = in through shared memory in `stages` stages of 128 x 16 bytes; copies with an index >= valid are zeros.
void LaunchPipeline(uint32_t* out, const uint32_t* in, int num_tiles, int valid, int stages, Stream stream);
// What a thread sees of a copy that it has not waited for.
void LaunchReadTooEarly(uint32_t* out, const uint32_t* in, Stream stream);

// 4 matrices of 8 x 8 16-bit elements, then out[lane]: x1, x2, x4 plain, then transposed (14 registers).
void LaunchLoadMatrices(uint32_t* out, const uint16_t* matrices, Stream stream);
// d[16, 8] += a[16, 16] b[16, 8], all row by row; 16-bit elements.
void LaunchProduct(float* d, const uint16_t* a, const uint16_t* b, bool f16, Stream stream);
// d[16, 16] = a[16, 16] b[16, 16] by wmma; `by_columns`: b and d lie column by column.
void LaunchWmma(float* d, const uint16_t* a, const uint16_t* b, bool by_columns, Stream stream);

// out[i] = f_i(...) for the intrinsics in the order of the source.
constexpr int kNumIntrinsics = 39;
void LaunchIntrinsics(uint32_t* out, Stream stream);

// ---------------------------------------------------------------- what must be diagnosed

enum class Misuse {
  kDifferentBarriers,
  kBarrierNobodyElseReaches,
  kBarrierOfOddNumber,
  kSharedStructTooLarge,
  kMaskWithoutCaller,
  kMaskWithExitedLane,
  kExitWhileOthersWait,
  kDifferentWarpOperations,
  kDivergentShuffle,
  kShuffleFromOutsideMask,
  kShuffleWidth,
  kCopyMisaligned,
  kCopyNotToShared,
  kCopyNeverWaitedFor,
  kCopyNeverCommitted,
  kCopyDestinationWritten,
  kCopySourceWritten,
  kMatrixRowMisaligned,
  kMatrixRowNotShared,
  kWmmaMisaligned,
  kWmmaStride,
  kStreamingMisaligned,
  kWritePastTheEnd,
  kWriteBeforeTheStart,
  kLaunchFromKernel,
};

// `memory`: 64 aligned bytes of device memory and no more.
void LaunchMisuse(Misuse misuse, uint32_t* memory, Stream stream);
// A kernel that does nothing, with any configuration.
void LaunchNothing(Size3 grid, Size3 block, unsigned shared_bytes, Stream stream);

}  // namespace sluice::cuda_testing
