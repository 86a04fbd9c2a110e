// Products in f32: routers, whose results decide, and everything with f32 activations.
//
// K is cut into runs of kRun values, each summed from 0, ascending, and added to the runs before: shorter chains of
// roundings, and the same for every m. A block takes 16 rows of W for some tokens, its threads different runs, for
// routers are too small to fill a GPU with one thread a row; weights come through shared memory, so that those of all
// runs are in flight together.
#include <algorithm>

#include "engine/ops/cuda/kernels/gemm_product.cuh"
#include "engine/ops/cuda/kernels/ptx.h"

namespace sluice::cuda {
namespace {

constexpr int kPairs = kTileRows / 2;  // of rows g and g + 8, a thread's
constexpr int kRun = 32;

template <int kTokens>
constexpr int kMaxRuns = kTokens <= 4 ? 64 : 32;  // of a round: what shared memory has room for

// What a block keeps of one run. The ends put different runs into different banks.
template <int kTokens>
struct Run {
  alignas(16) float weights[kRun * kTileRows + kPairs];
  float x[kTokens][kRun + 4];
  float sums[kTokens][kTileRows];
};

// Brings the values of the block's runs from k = round on; those after the end of k are zeros.
template <int kTokens>
__device__ __forceinline__ void Fetch(const float* weights, const float* const (&x)[kTokens], int32_t k_end,
                                      int32_t round, Run<kTokens>* to) {
  constexpr int kPieces = kTileRows / 4;  // of 16 bytes, of the weights of a k
  constexpr int kSteps = kRun / kPairs;   // each of as many values of k as there are threads
  const int32_t threads = static_cast<int32_t>(blockDim.x), thread = static_cast<int32_t>(threadIdx.x);
#pragma unroll
  for (int step = 0; step < kSteps * kPieces; ++step) {
    const int32_t i = step * threads + thread, k = i / kPieces;
    const int64_t at = int64_t{min(round + k, k_end - 1)} * kTileRows + i % kPieces * 4;
    ptx::cp_async16(&to[k / kRun].weights[k % kRun * kTileRows + i % kPieces * 4], weights + at, round + k < k_end);
  }
  ptx::cp_async_commit();
  float values[kSteps][kTokens];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int32_t k = round + step * threads + thread;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) values[step][t] = k < k_end ? x[t][k] : 0;
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int32_t k = step * threads + thread;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) to[k / kRun].x[t][k % kRun] = values[step][t];
  }
  ptx::cp_async_wait<0>();
}

template <int kTokens>
__device__ __forceinline__ void SumRun(Run<kTokens>& run, int32_t pair, int32_t count) {
  float low[kTokens] = {}, high[kTokens] = {};
  const auto add = [&](int32_t k) {
    const float low_w = run.weights[k * kTileRows + pair], high_w = run.weights[k * kTileRows + pair + kPairs];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      low[t] = fmaf(low_w, run.x[t][k], low[t]);
      high[t] = fmaf(high_w, run.x[t][k], high[t]);
    }
  };
  if (count == kRun) {
#pragma unroll
    for (int32_t k = 0; k < kRun; ++k) add(k);
  } else {
    for (int32_t k = 0; k < count; ++k) add(k);
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    run.sums[t][pair] = low[t];
    run.sums[t][pair + kPairs] = high[t];
  }
}

// blockIdx: (tile of kTokens places, row tile, batch). Thread: run of the round * kPairs + pair.
template <int kTokens>
__global__ void __launch_bounds__(kMaxRuns<kTokens>* kPairs) F32Kernel(const __grid_constant__ Product product) {
  SLUICE_SHARED(Run<kTokens>, first_run);
  Run<kTokens>* shared = &first_run;
  const Places places = CoverPlaces<kTokens>(product);
  if (places.count <= 0) return;
  const WeightMatrix& w = product.gemm.w;
  const int32_t row_tile = static_cast<int32_t>(blockIdx.y), runs = static_cast<int32_t>(blockDim.x) / kPairs;
  const int32_t pair = static_cast<int32_t>(threadIdx.x) % kPairs, run = static_cast<int32_t>(threadIdx.x) / kPairs;
  const float* weights = reinterpret_cast<const float*>(Matrix(product, places)) + int64_t{row_tile} * w.k * kTileRows;
  const float* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t)
    x[t] = static_cast<const float*>(XRow(product, places, places.first + min(t, places.count - 1)));

  // Threads below kTokens * kPairs: the totals of token `run`.
  float low = 0, high = 0;
  for (int32_t round = 0; round < w.k; round += runs * kRun) {
    Fetch(weights, x, w.k, round, shared);
    __syncthreads();
    SumRun(shared[run], pair, min(kRun, w.k - round - run * kRun));
    __syncthreads();
    if (run < kTokens) {
      const int32_t there = min(runs, (w.k - round + kRun - 1) / kRun);
      for (int32_t r = 0; r < there; ++r) {
        low += shared[r].sums[run][pair];
        high += shared[r].sums[run][pair + kPairs];
      }
    }
  }
  if (run < places.count) Finish(product, places, places.first + run, row_tile, pair, low, high);
}

template <int kTokens>
void Launch(const Product& product, Stream stream) {
  // Whole warps, and a run a token at least.
  const int32_t wanted = std::clamp((product.gemm.w.k + kRun - 1) / kRun, kTokens, kMaxRuns<kTokens>);
  const int32_t runs = (wanted * kPairs + 31) / 32 * 32 / kPairs;
  const dim3 grid(PlaceTiles(product, kTokens), static_cast<unsigned>(RowTiles(product.gemm.w.n, product.gemm.w.gated)),
                  product.num_batches);
  SLUICE_LAUNCH(F32Kernel<kTokens>, grid, dim3(static_cast<unsigned>(runs * kPairs)),
                static_cast<size_t>(runs) * sizeof(Run<kTokens>), stream, product);
}

}  // namespace

void LaunchF32(const Product& product, Stream stream) {
  if (product.gemm.m <= 64) return Launch<4>(product, stream);
  Launch<8>(product, stream);  // each weight read serves more
}

}  // namespace sluice::cuda
