// Products for few tokens: bound by reading the weights. Those of 16 bits go from global memory straight into mma
// operands, as do those of Q8_0; smaller ones through a ring in shared memory of each warp's own.
#pragma once

#include <type_traits>

#include "engine/ops/cuda/kernels/gemm_product.cuh"
#include "engine/ops/cuda/kernels/gemm_step.cuh"

namespace sluice::cuda {

// A warp a slice of K.
inline constexpr int kSkinnyThreads = 32 * kSlices;

// One step of a warp's slice in shared memory: of each row tile the K tile's header and the payload.
template <class F, int kRowTiles>
struct RingStep {
  static constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
  static constexpr int kChunks = (kLayout.header_bytes + kLayout.payload_bytes) / 16;
  uint4 chunks[kRowTiles][kChunks];
};

inline constexpr int kRingStages = 4;  // one is used while the others arrive

// Whether steps wait in shared memory rather than in registers: small ones, of which many must be on their way, and
// those of several row tiles, which would take registers that a second block on the SM needs.
template <class F, int kRowTiles>
inline constexpr bool kHasRing = F::kScaled && (kRowTiles > 1 || TileLayoutOf(F::kFormat).payload_bytes < 1024);

template <class F, int kRowTiles>
struct SkinnyRings {
  RingStep<F, kRowTiles> rings[kSlices][kRingStages];
};
struct NoRings {};

template <class F, int kRowTiles, int kTokenTiles>
struct SkinnyShared : std::conditional_t<kHasRing<F, kRowTiles>, SkinnyRings<F, kRowTiles>, NoRings> {
  // Rows far enough apart that the stores of a warp do not meet in a bank.
  static constexpr int kStride = kTokenTiles == 1 ? 8 : kTokenTiles * 8 + 8;
  float sums[kSlices][kRowTiles * kTileRows][kStride];
};

// x of one step straight from global memory, where all blocks find the same rows in cache. k ends at a multiple of
// kGranule.
template <int kTokenTiles, int kGranule>
struct GlobalX {
  const std::byte* rows[kTokenTiles];  // of the lane's tokens, from its first value on
  int32_t k = 0;                       // of the step
  int32_t left = 0;                    // values of k from there
  __device__ __forceinline__ void MoveTo(int32_t step, int32_t all_k) {
    k = step * kStepK;
    left = all_k - k;
  }
  __device__ __forceinline__ uint2 operator()(int t, int j) const {
    const int first = kGranule >= 32 ? j / 2 * 32 : 16 * j + 4 * static_cast<int>(threadIdx.x % 4);
    if (first > 0 && kGranule < kStepK && first >= left) return {0, 0};
    return __ldg(reinterpret_cast<const uint2*>(rows[t] + (k + 16 * j) * int64_t{2}));
  }
};

// One step of each of a block's row tiles, in registers.
template <class F, int kRowTiles>
struct StepRegisters {
  typename F::Header headers[kRowTiles];
  typename F::Payload payloads[kRowTiles];

  // `tiles`: the first K tile of each row tile.
  __device__ __forceinline__ void Load(const std::byte* const (&tiles)[kRowTiles], int32_t step) {
    constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const std::byte* tile = tiles[r] + int64_t{step / kLayout.steps} * kLayout.bytes();
      headers[r] = F::template LoadHeader<GlobalMemory>(tile, lane);
      payloads[r] = F::template LoadPayload<GlobalMemory>(
          tile + kLayout.header_bytes + step % kLayout.steps * kLayout.payload_bytes, lane);
    }
  }
};

// sums += steps [step, end), kAhead of which are in registers on their way.
template <class F, int kRowTiles, int kTokenTiles, int kAhead, class X>
__device__ __forceinline__ void MultiplyFromRegisters(const std::byte* const (&tiles)[kRowTiles], int32_t step,
                                                      int32_t end, int32_t k, X& x,
                                                      float (&sums)[kRowTiles][kTokenTiles][4]) {
  StepRegisters<F, kRowTiles> ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (step + i < end) ahead[i].Load(tiles, step + i);
  for (; step < end; step += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (step + i >= end) break;
      x.MoveTo(step + i, k);
      MultiplyStep<F>(ahead[i].headers, ahead[i].payloads, x, sums);
      if (step + i + kAhead < end) ahead[i].Load(tiles, step + i + kAhead);
    }
  }
}

// Likewise with the steps on their way in shared memory: asynchronous copies wait by groups, registers by one of six
// scoreboards, which several steps would share. `step` is the first of a K tile.
template <class F, int kRowTiles, int kTokenTiles, class X>
__device__ __forceinline__ void MultiplyFromRing(const std::byte* const (&tiles)[kRowTiles], int32_t step, int32_t end,
                                                 int32_t k, X& x, RingStep<F, kRowTiles> (&ring)[kRingStages],
                                                 float (&sums)[kRowTiles][kTokenTiles][4]) {
  constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
  static_assert(kRingStages % kLayout.steps == 0);
  constexpr int kHeaderChunks = kLayout.header_bytes / 16, kChunks = RingStep<F, kRowTiles>::kChunks;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::byte* from[kRowTiles];  // the K tile of `step`
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) from[r] = tiles[r] + int64_t{step / kLayout.steps} * kLayout.bytes();
  // Step `step` + i. Beyond the last an empty group keeps the count.
  const auto fetch = [&](const int i) {
    if (step + i < end) {
      const int tile_at = i / kLayout.steps * kLayout.bytes(), payload_at = i % kLayout.steps * kLayout.payload_bytes;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int first = 0; first < kChunks; first += 32) {
          const int chunk = first + lane;
          if (first + 32 > kChunks && chunk >= kChunks) break;
          ptx::cp_async16(&ring[i % kRingStages].chunks[r][chunk],
                          from[r] + tile_at + (chunk < kHeaderChunks ? 0 : payload_at) + chunk * 16);
        }
      }
    }
    ptx::cp_async_commit();
  };
#pragma unroll
  for (int i = 0; i < kRingStages - 1; ++i) fetch(i);
  for (; step < end; step += kRingStages) {
#pragma unroll
    for (int i = 0; i < kRingStages; ++i) {
      if (step + i >= end) break;
      ptx::cp_async_wait<kRingStages - 2>();
      __syncwarp();  // the step has arrived, and all lanes are done with the one before it, whose stage is free
      fetch(i + kRingStages - 1);
      typename F::Header headers[kRowTiles];
      typename F::Payload payloads[kRowTiles];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const std::byte* at = reinterpret_cast<const std::byte*>(ring[i].chunks[r]);
        headers[r] = F::template LoadHeader<SharedMemory>(at, lane);
        payloads[r] = F::template LoadPayload<SharedMemory>(at + kLayout.header_bytes, lane);
      }
      x.MoveTo(step + i, k);
      MultiplyStep<F>(headers, payloads, x, sums);
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) from[r] += kRingStages / kLayout.steps * kLayout.bytes();
  }
  ptx::cp_async_wait<0>();
}

// blockIdx: (tile of kTokenTiles * 8 places, kRowTiles row tiles, batch). A warp keeps `kAhead` steps of its slice in
// flight.
template <class F, int kRowTiles, int kTokenTiles, int kAhead>
__global__ void __launch_bounds__(kSkinnyThreads) SkinnyKernel(const __grid_constant__ Product product) {
  using Shared = SkinnyShared<F, kRowTiles, kTokenTiles>;
  SLUICE_SHARED(Shared, shared);
  constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
  const Places places = CoverPlaces<kTokenTiles * 8>(product);
  if (places.count <= 0) return;
  const WeightMatrix& w = product.gemm.w;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, q = lane % 4;
  const int slice = static_cast<int>(threadIdx.x / 32);
  const int32_t row_tiles = RowTiles(w.n, w.gated), k_tiles = KTiles(kLayout, w.k);
  const int32_t first_row_tile = static_cast<int32_t>(blockIdx.y) * kRowTiles;

  // Tiles and tokens beyond the last are read as the last, and not written.
  const std::byte* tiles[kRowTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
    tiles[r] = Matrix(product, places) + int64_t{min(first_row_tile + r, row_tiles - 1)} * k_tiles * kLayout.bytes();
  GlobalX<kTokenTiles, F::kGranule> x;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t)
    x.rows[t] = static_cast<const std::byte*>(XRow(product, places, places.first + min(t * 8 + g, places.count - 1))) +
                q * 4 * 2;

  const int32_t end = SliceStart(slice + 1, k_tiles) * kLayout.steps;
  const int32_t begin = SliceStart(slice, k_tiles) * kLayout.steps;
  float sums[kRowTiles][kTokenTiles][4] = {};
  if constexpr (kHasRing<F, kRowTiles>) {
    MultiplyFromRing<F>(tiles, begin, end, w.k, x, shared.rings[slice], sums);
  } else {
    MultiplyFromRegisters<F, kRowTiles, kTokenTiles, kAhead>(tiles, begin, end, w.k, x, sums);
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        *reinterpret_cast<float2*>(&shared.sums[slice][r * kTileRows + g + i / 2 * 8][t * 8 + q * 2]) =
            make_float2(sums[r][t][i], sums[r][t][i + 1]);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRowTiles * 8 * kTokenTiles * 8; i += kSkinnyThreads) {
    const int row = i % 8, r = i / 8 % kRowTiles, token = i / (8 * kRowTiles);
    if (token >= places.count || first_row_tile + r >= row_tiles) continue;
    float low = 0, high = 0;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      low += shared.sums[s][r * kTileRows + row][token];
      high += shared.sums[s][r * kTileRows + row + 8][token];
    }
    Finish(product, places, places.first + token, first_row_tile + r, row, low, high);
  }
}

template <class F, int kRowTiles, int kTokenTiles, int kAhead>
void LaunchSkinnyTile(const Product& product, Stream stream) {
  const GemmArgs& gemm = product.gemm;
  const int32_t row_blocks = (RowTiles(gemm.w.n, gemm.w.gated) + kRowTiles - 1) / kRowTiles;
  const dim3 grid(PlaceTiles(product, kTokenTiles * 8), row_blocks, product.num_batches);
  SLUICE_LAUNCH((SkinnyKernel<F, kRowTiles, kTokenTiles, kAhead>), grid, kSkinnyThreads,
                sizeof(SkinnyShared<F, kRowTiles, kTokenTiles>), stream, product);
}

// A block's row tiles share what it reads of x, so more tokens want more of them; but a small matrix must not be left
// with fewer blocks than there are processors.
template <class F>
void LaunchSkinny(const Product& product, int32_t tokens, Stream stream) {
  constexpr int32_t kManyRowTiles = 4 * 96;
  constexpr int kAhead = kHasRing<F, 1> ? kRingStages - 1 : F::kScaled ? 4 : 2;
  if (tokens <= 8) {
    LaunchSkinnyTile<F, 1, 1, kAhead>(product, stream);
  } else if (tokens <= 16) {
    LaunchSkinnyTile<F, 1, 2, kAhead>(product, stream);
  } else if constexpr (F::kScaled) {
    LaunchSkinnyTile<F, 2, 4, kRingStages - 1>(product, stream);
  } else if (tokens > 32) {
    LaunchSkinnyTile<F, 2, 8, 1>(product, stream);
  } else if (RowTiles(product.gemm.w.n, product.gemm.w.gated) >= kManyRowTiles) {
    LaunchSkinnyTile<F, 4, 4, 1>(product, stream);
  } else {
    LaunchSkinnyTile<F, 2, 4, 1>(product, stream);
  }
}

}  // namespace sluice::cuda
