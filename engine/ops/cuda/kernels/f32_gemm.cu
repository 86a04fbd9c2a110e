// Products in f32: routers, whose results decide, and everything with f32 activations.
//
// K is cut into runs of kRun values, each summed from 0, ascending, and added to the runs before: shorter chains of
// roundings, and the same for every m. A block takes 16 rows of W for some tokens, its threads different runs, for
// routers are too small to fill a GPU with one thread a row.
#include <algorithm>

#include "engine/ops/cuda/kernels/gemm_product.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kPairs = kTileRows / 2;  // of rows g and g + 8, a thread's
constexpr int kRun = 32;
constexpr int kAtOnce = 16;  // values whose loads are under way together

// The sums of a run for all tokens and rows of a block.
template <int kTokens>
struct RunSums {
  float of[kTokens][kTileRows];
};

// Adds values k to k + kCount of x times those of the thread's two rows, all loads under way together.
template <int kCount, int kTokens>
__device__ __forceinline__ void AddProducts(const float* weights, const float* const (&x)[kTokens], int32_t k,
                                            float (&low)[kTokens], float (&high)[kTokens]) {
  constexpr int kWidth = kCount % 4 == 0 ? 4 : 1;
  struct alignas(4 * kWidth) Piece {
    float values[kWidth];
  };
  float low_w[kCount], high_w[kCount];
  Piece pieces[kTokens][kCount / kWidth];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    low_w[i] = weights[int64_t{k + i} * kTileRows];
    high_w[i] = weights[int64_t{k + i} * kTileRows + kPairs];
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int i = 0; i < kCount / kWidth; ++i) pieces[t][i] = *reinterpret_cast<const Piece*>(x[t] + k + i * kWidth);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float value = pieces[t][i / kWidth].values[i % kWidth];
      low[t] = fmaf(low_w[i], value, low[t]);
      high[t] = fmaf(high_w[i], value, high[t]);
    }
  }
}

// blockIdx: (tile of kTokens places, row tile, batch). Thread: run of the round * kPairs + pair.
template <int kTokens>
__global__ void __launch_bounds__(kMaxThreads) F32Kernel(const __grid_constant__ Product product) {
  SLUICE_SHARED(RunSums<kTokens>, first_sums);
  RunSums<kTokens>* sums = &first_sums;
  const Places places = CoverPlaces<kTokens>(product);
  if (places.count <= 0) return;
  const WeightMatrix& w = product.gemm.w;
  const int32_t row_tile = static_cast<int32_t>(blockIdx.y), thread = static_cast<int32_t>(threadIdx.x);
  const int32_t pair = thread % kPairs, run = thread / kPairs, runs = static_cast<int32_t>(blockDim.x) / kPairs;
  const float* weights =
      reinterpret_cast<const float*>(Matrix(product, places)) + int64_t{row_tile} * w.k * kTileRows + pair;
  const float* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t)
    x[t] = static_cast<const float*>(XRow(product, places, places.first + min(t, places.count - 1)));

  // Threads below kTokens * kPairs: the totals of token `run`.
  float low = 0, high = 0;
  for (int32_t round = 0; round < w.k; round += runs * kRun) {
    const int32_t first = round + run * kRun, end = min(w.k, first + kRun);
    float low_run[kTokens] = {}, high_run[kTokens] = {};
    int32_t k = first;
#pragma unroll 1
    for (; k + kAtOnce <= end; k += kAtOnce) AddProducts<kAtOnce>(weights, x, k, low_run, high_run);
#pragma unroll 1
    for (; k < end; ++k) AddProducts<1>(weights, x, k, low_run, high_run);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      sums[run].of[t][pair] = low_run[t];
      sums[run].of[t][pair + kPairs] = high_run[t];
    }
    __syncthreads();
    if (run < kTokens) {
      const int32_t there = min(runs, (w.k - round + kRun - 1) / kRun);
      for (int32_t r = 0; r < there; ++r) {
        low += sums[r].of[run][pair];
        high += sums[r].of[run][pair + kPairs];
      }
    }
    __syncthreads();
  }
  if (run < places.count) Finish(product, places, places.first + run, row_tile, pair, low, high);
}

template <int kTokens>
void Launch(const Product& product, Stream stream) {
  // Whole warps, and a run a token at least.
  const int32_t runs = std::clamp((product.gemm.w.k + kRun - 1) / kRun, kTokens, kMaxThreads / kPairs);
  const int32_t threads = (runs * kPairs + 31) / 32 * 32;
  const dim3 grid(PlaceTiles(product, kTokens), static_cast<unsigned>(RowTiles(product.gemm.w.n, product.gemm.w.gated)),
                  product.num_batches);
  SLUICE_LAUNCH(F32Kernel<kTokens>, grid, dim3(static_cast<unsigned>(threads)),
                threads / kPairs * sizeof(RunSums<kTokens>), stream, product);
}

}  // namespace

void LaunchF32(const Product& product, Stream stream) {
  if (product.gemm.m <= 64) return Launch<4>(product, stream);
  Launch<8>(product, stream);  // each weight read serves more
}

}  // namespace sluice::cuda
