// Products in f32, for tests and f32 activations: a thread a pair of rows and four tokens, no shared memory.
#include "engine/ops/cuda/kernels/gemm_product.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTokens = 4;
// K is cut into runs of so many values, each summed from 0, ascending, and added to the runs before: shorter chains of
// roundings, the same for every m.
constexpr int kRun = 64;

// blockIdx: (tile of kTokens places, kThreads / 8 row tiles, batch).
__global__ void __launch_bounds__(kThreads) F32Kernel(const __grid_constant__ Product product) {
  const Places places = CoverPlaces<kTokens>(product);
  const WeightMatrix& w = product.gemm.w;
  const int64_t pair = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const int32_t row_tile = static_cast<int32_t>(pair / 8);
  const int g = static_cast<int>(pair % 8);
  if (places.count <= 0 || row_tile >= RowTiles(w.n, w.gated)) return;
  const float* weights =
      reinterpret_cast<const float*>(Matrix(product, places)) + int64_t{row_tile} * w.k * kTileRows + g;
  const float* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t)
    x[t] = static_cast<const float*>(XRow(product, places, places.first + min(t, places.count - 1)));

  float low[kTokens] = {}, high[kTokens] = {};
  for (int32_t first = 0; first < w.k; first += kRun) {
    float low_run[kTokens] = {}, high_run[kTokens] = {};
    const int32_t end = min(w.k, first + kRun);
    for (int32_t k = first; k < end; ++k) {
      const float low_w = weights[int64_t{k} * kTileRows], high_w = weights[int64_t{k} * kTileRows + 8];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float value = x[t][k];
        low_run[t] = fmaf(low_w, value, low_run[t]);
        high_run[t] = fmaf(high_w, value, high_run[t]);
      }
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      low[t] += low_run[t];
      high[t] += high_run[t];
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t)
    if (t < places.count) Finish(product, places, places.first + t, row_tile, g, low[t], high[t]);
}

}  // namespace

void LaunchF32(const Product& product, Stream stream) {
  const int64_t pairs = int64_t{RowTiles(product.gemm.w.n, product.gemm.w.gated)} * 8;
  const dim3 grid(PlaceTiles(product, kTokens), static_cast<unsigned>((pairs + kThreads - 1) / kThreads),
                  product.num_batches);
  SLUICE_LAUNCH(F32Kernel, grid, kThreads, 0, stream, product);
}

}  // namespace sluice::cuda
