#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"
#include "tests/cuda_on_cpu/sample_kernels.h"

namespace sluice::cuda_testing {
namespace {

constexpr unsigned kAll = 0xffffffffu;

__device__ __forceinline__ float SumOfWarp(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

unsigned DivideUp(int a, int b) { return static_cast<unsigned>((a + b - 1) / b); }

// ---------------------------------------------------------------- rows of unit mean square: a block a row

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;

struct RowShared {
  float partials[kRowWarps];
};

struct alignas(16) Eight {
  __nv_bfloat16 values[8];
};

__global__ void __launch_bounds__(kRowThreads)
    UnitRowsKernel(__nv_bfloat16* __restrict__ y, const __nv_bfloat16* __restrict__ x, int n) {
  SLUICE_SHARED(RowShared, shared);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const size_t row = size_t{blockIdx.x} * n;
  float sum = 0.0f;
  for (int i = thread * 8; i < n; i += kRowThreads * 8) {
    const Eight in = *reinterpret_cast<const Eight*>(x + row + i);
    for (int j = 0; j < 8; ++j) sum += __bfloat162float(in.values[j]) * __bfloat162float(in.values[j]);
  }
  sum = SumOfWarp(sum);
  if (lane == 0) shared.partials[warp] = sum;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < kRowWarps; ++i) total += shared.partials[i];
  const float scale = rsqrtf(total / static_cast<float>(n));
  for (int i = thread * 8; i < n; i += kRowThreads * 8) {
    const Eight in = *reinterpret_cast<const Eight*>(x + row + i);
    Eight out;
    for (int j = 0; j < 8; ++j) out.values[j] = __float2bfloat16(__bfloat162float(in.values[j]) * scale);
    *reinterpret_cast<Eight*>(y + row + i) = out;
  }
}

// ---------------------------------------------------------------- means over pages: a block a split, then a merge

constexpr int kPage = 16, kWidth = 64, kMeanWarps = 4;

struct MeanShared {
  float sums[kMeanWarps][kWidth];
};

__global__ void __launch_bounds__(kMeanWarps * 32) PagedSumKernel(const __grid_constant__ PagedMeanArgs args) {
  SLUICE_SHARED(MeanShared, shared);
  const int split = static_cast<int>(blockIdx.x), seq = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int begin = split * args.tokens_per_split, end = min(args.length[seq], begin + args.tokens_per_split);
  if (begin >= end) return;
  float2 sum = make_float2(0.0f, 0.0f);
  for (int token = begin + warp; token < end; token += kMeanWarps) {
    const int page = args.table[seq * args.max_pages + token / kPage];
    const float* row = args.pages + (size_t{kPage} * page + token % kPage) * kWidth;
    const float2 value = *reinterpret_cast<const float2*>(row + 2 * lane);
    sum.x += value.x;
    sum.y += value.y;
  }
  *reinterpret_cast<float2*>(&shared.sums[warp][2 * lane]) = sum;
  __syncthreads();
  if (thread >= kWidth) return;
  float total = 0.0f;
  for (int i = 0; i < kMeanWarps; ++i) total += shared.sums[i][thread];
  args.partials[(size_t(seq) * args.num_splits + split) * kWidth + thread] = total;
}

__global__ void __launch_bounds__(kWidth) MergeMeanKernel(const __grid_constant__ PagedMeanArgs args) {
  const int seq = static_cast<int>(blockIdx.x), i = static_cast<int>(threadIdx.x), length = args.length[seq];
  const int used = (length + args.tokens_per_split - 1) / args.tokens_per_split;
  float sum = 0.0f;
  for (int split = 0; split < used; ++split) sum += args.partials[(size_t(seq) * args.num_splits + split) * kWidth + i];
  args.y[seq * kWidth + i] = length == 0 ? 0.0f : sum / static_cast<float>(length);
}

// ---------------------------------------------------------------- products: 32 x 32 tiles of c, a warp each 16 x 16

constexpr int kTile = 32, kStep = 32, kPitch = kStep + 8;  // pitch: eight rows fall into different banks

struct alignas(128) ProductShared {
  __nv_bfloat16 a[2][kTile][kPitch];
  __nv_bfloat16 b[2][kTile][kPitch];
};

__device__ __forceinline__ void BeginStage(ProductShared& shared, int stage, const __nv_bfloat16* a,
                                           const __nv_bfloat16* b, int m, int n, int k, int row0, int column0, int k0) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kStep / 8; i += 128) {
    const int row = i / (kStep / 8), at = i % (kStep / 8) * 8;
    ptx::cp_async16(&shared.a[stage][row][at], a + size_t(min(row0 + row, m - 1)) * k + k0 + at, row0 + row < m);
    ptx::cp_async16(&shared.b[stage][row][at], b + size_t(min(column0 + row, n - 1)) * k + k0 + at, column0 + row < n);
  }
  ptx::cp_async_commit();
}

template <bool kWmma>
__global__ void __launch_bounds__(128) ProductKernel(float* __restrict__ c, const __nv_bfloat16* __restrict__ a,
                                                     const __nv_bfloat16* __restrict__ b, int m, int n, int k) {
  SLUICE_SHARED(ProductShared, shared);
  namespace wmma = nvcuda::wmma;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int row0 = static_cast<int>(blockIdx.y) * kTile, column0 = static_cast<int>(blockIdx.x) * kTile;
  const int warp_row = warp / 2 * 16, warp_column = warp % 2 * 16;
  float sums[2][4] = {};
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> tile_sums;
  wmma::fill_fragment(tile_sums, 0.0f);
  BeginStage(shared, 0, a, b, m, n, k, row0, column0, 0);
  for (int k0 = 0, stage = 0; k0 < k; k0 += kStep, stage ^= 1) {
    if (k0 + kStep < k) {
      BeginStage(shared, stage ^ 1, a, b, m, n, k, row0, column0, k0 + kStep);
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    __syncthreads();
    for (int kk = 0; kk < kStep; kk += 16) {
      if constexpr (kWmma) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> fb;
        wmma::load_matrix_sync(fa, &shared.a[stage][warp_row][kk], kPitch);
        wmma::load_matrix_sync(fb, &shared.b[stage][warp_column][kk], kPitch);
        wmma::mma_sync(tile_sums, fa, fb, tile_sums);
      } else {
        uint32_t fa[4], fb[4];
        ptx::ldmatrix_x4(fa, &shared.a[stage][warp_row + lane % 16][kk + lane / 16 * 8]);
        ptx::ldmatrix_x4(fb, &shared.b[stage][warp_column + lane / 16 * 8 + lane % 8][kk + lane / 8 % 2 * 8]);
        for (int half = 0; half < 2; ++half) {
          const uint32_t columns[2] = {fb[2 * half], fb[2 * half + 1]};
          ptx::mma_m16n8k16_bf16(sums[half], fa, columns);
        }
      }
    }
    __syncthreads();  // the next stage overwrites this one
  }
  if constexpr (kWmma) {
    wmma::store_matrix_sync(c + size_t(row0 + warp_row) * n + column0 + warp_column, tile_sums, n, wmma::mem_row_major);
  } else {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) {
        const int row = row0 + warp_row + lane / 4 + i / 2 * 8;
        const int column = column0 + warp_column + half * 8 + lane % 4 * 2 + i % 2;
        if (row < m && column < n) c[size_t(row) * n + column] = sums[half][i];
      }
    }
  }
}

template <bool kWmma>
void LaunchProduct(float* c, const uint16_t* a, const uint16_t* b, int m, int n, int k, Stream stream) {
  SLUICE_LAUNCH((ProductKernel<kWmma>), dim3(DivideUp(n, kTile), DivideUp(m, kTile)), dim3(128), sizeof(ProductShared),
                stream, c, reinterpret_cast<const __nv_bfloat16*>(a), reinterpret_cast<const __nv_bfloat16*>(b), m, n,
                k);
}

}  // namespace

void LaunchUnitRows(uint16_t* y, const uint16_t* x, int rows, int n, Stream stream) {
  SLUICE_LAUNCH(UnitRowsKernel, dim3(static_cast<unsigned>(rows)), dim3(kRowThreads), sizeof(RowShared), stream,
                reinterpret_cast<__nv_bfloat16*>(y), reinterpret_cast<const __nv_bfloat16*>(x), n);
}

void LaunchPagedMean(const PagedMeanArgs& args, Stream stream) {
  const auto seqs = static_cast<unsigned>(args.num_seqs), splits = static_cast<unsigned>(args.num_splits);
  SLUICE_LAUNCH(PagedSumKernel, dim3(splits, seqs), dim3(kMeanWarps * 32), sizeof(MeanShared), stream, args);
  SLUICE_LAUNCH(MergeMeanKernel, dim3(seqs), dim3(kWidth), 0, stream, args);
}

void LaunchProductOfRows(float* c, const uint16_t* a, const uint16_t* b, int m, int n, int k, Stream stream) {
  LaunchProduct<false>(c, a, b, m, n, k, stream);
}

void LaunchProductByWmma(float* c, const uint16_t* a, const uint16_t* b, int m, int n, int k, Stream stream) {
  LaunchProduct<true>(c, a, b, m, n, k, stream);
}

}  // namespace sluice::cuda_testing
