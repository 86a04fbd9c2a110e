// Products for many tokens: a block computes 128 rows x 64 or 128 tokens and both operands go through shared memory,
// whence every byte is used by several warps. The packed weights keep their form there; operands are made of them as in
// the skinny kernel, by the same functions in the same order, so the bits are the same.
//
//               tokens 0 .. 63   64 .. 127       the warps of a block of 128 tokens; of 64 each has half as many
//   rows  0..31    warp 0         warp 4         warp w: row tiles 2 (w % 4) and the next, of 16 rows each;
//   rows 32..63    warp 1         warp 5                 token tiles of 8 from 8 (w / 4) on
//   rows 64..95    warp 2         warp 6
//   rows 96..127   warp 3         warp 7
//
//   step           before    0      1      2      3         three stages in shared memory
//   begins to copy  0, 1     2      3      4      5
//   into stage      0, 1     2      0      1      2         the one that the last step was computed from
//   computes                 0      1      2      3
//   from stage               0      1      2      0
//
// Where a value is (weight_layout.h): row 9, k = 21 of a step is in mma 21 / 16 = 1, lane 4 (9 % 8) + 21 % 16 / 4 = 5,
// register 9 / 8 + 2 (21 % 4 / 2) = 1, its high half. x of token 6, k = 21 .. : chunk 21 / 8 = 2 of mma 1 lies at chunk
// 2 (1 ^ 6 % 4) = 6.
#pragma once

#include "engine/ops/cuda/kernels/gemm_product.cuh"
#include "engine/ops/cuda/kernels/gemm_step.cuh"

namespace sluice::cuda {

inline constexpr int kTiledThreads = 256;
inline constexpr int kTiledRowTiles = 8;
inline constexpr int kTiledStages = 3;  // of cp.async: one is used while the next two arrive

// Four warps share out the rows, two the tokens.
inline constexpr int kWarpRowTiles = 2;
constexpr int TiledTokens(int warp_token_tiles) { return 2 * warp_token_tiles * 8; }

// One step: 64 values of k.
template <class F, int kTokens>
struct TiledStage {
  static constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
  // Of a row tile: the K tile's header and the payload of the step.
  static constexpr int kChunks = (kLayout.header_bytes + kLayout.payload_bytes) / 16;
  uint4 weights[kTiledRowTiles][kChunks];
  // Eight values a chunk. The two chunks of mma j lie where those of mma j ^ (token % 4) would be, so that the lanes of
  // a half-warp, which read 8 bytes of four tokens, do not meet in a bank.
  uint4 x[kTokens][kStepK / 8];
};

template <class F, int kTokens>
union TiledShared {
  TiledStage<F, kTokens> stages[kTiledStages];
  float sums[kTiledRowTiles * kTileRows][kTokens + 8];
};

// x of one step from shared memory.
struct SharedX {
  const uint4* tokens;  // the lane's first token: 8 of the same lane lie 8 tokens apart
  __device__ __forceinline__ uint2 operator()(int t, int j) const {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, q = lane % 4;
    const uint4* chunks = tokens + t * 8 * (kStepK / 8) + (j ^ (g % 4)) * 2;
    return reinterpret_cast<const uint2*>(chunks)[q];
  }
};

// Begins the copies of a block's operands, a step after the other.
template <class F, int kTokens>
class TiledLoader {
 public:
  __device__ __forceinline__ TiledLoader(const Product& product, const Places& places, int32_t first_row_tile)
      : w_(product.gemm.w),
        row_tiles_(RowTiles(w_.n, w_.gated)),
        k_tiles_(KTiles(TileLayoutOf(F::kFormat), w_.k)),
        first_row_tile_(first_row_tile),
        matrix_(Matrix(product, places)) {
#pragma unroll
    for (int i = 0; i < kTokensAThread; ++i)
      x_[i] = static_cast<const std::byte*>(XRow(product, places, places.first + min(Token(i), places.count - 1)));
  }

  // Rows and tokens beyond the last are copies of the last, k beyond the end zeros.
  __device__ __forceinline__ void Begin(int32_t step, TiledStage<F, kTokens>& stage) const {
    constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
    constexpr int kHeaderChunks = kLayout.header_bytes / 16;
    const int32_t k_tile = step / kLayout.steps;
    const int payload_at = kLayout.header_bytes + step % kLayout.steps * kLayout.payload_bytes;
    for (int i = static_cast<int>(threadIdx.x); i < kTiledRowTiles * kChunks; i += kTiledThreads) {
      const int r = i / kChunks, chunk = i % kChunks;
      const int64_t tile = int64_t{min(first_row_tile_ + r, row_tiles_ - 1)} * k_tiles_ + k_tile;
      const int at = chunk < kHeaderChunks ? chunk * 16 : payload_at + (chunk - kHeaderChunks) * 16;
      ptx::cp_async16(&stage.weights[r][chunk], matrix_ + tile * kLayout.bytes() + at);
    }
    const int chunk = static_cast<int>(threadIdx.x % 8);
    const int32_t k = step * kStepK + chunk * 8;
#pragma unroll
    for (int i = 0; i < kTokensAThread; ++i) {
      const int token = Token(i), to = (chunk / 2 ^ token % 4) * 2 + chunk % 2;
      ptx::cp_async16(&stage.x[token][to], x_[i] + (k < w_.k ? k * int64_t{2} : 0), k < w_.k);
    }
  }

  __device__ __forceinline__ int32_t k_tiles() const { return k_tiles_; }
  __device__ __forceinline__ int32_t row_tiles() const { return row_tiles_; }

 private:
  static constexpr int kChunks = TiledStage<F, kTokens>::kChunks;
  static constexpr int kTokensAThread = kTokens * 8 / kTiledThreads;
  static __device__ __forceinline__ int Token(int i) {
    return static_cast<int>(threadIdx.x / 8) + i * (kTiledThreads / 8);
  }

  const WeightMatrix& w_;
  const int32_t row_tiles_, k_tiles_, first_row_tile_;
  const std::byte* const matrix_;
  const std::byte* x_[kTokensAThread];
};

// sums += the step that has arrived in `stage`, for the warp's row tiles and tokens from the given ones on.
template <class F, int kTokens, int kWarpTokenTiles>
__device__ __forceinline__ void MultiplyStage(const TiledStage<F, kTokens>& stage, int first_row_tile, int first_token,
                                              float (&sums)[kWarpRowTiles][kWarpTokenTiles][4]) {
  constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
  const int lane = static_cast<int>(threadIdx.x % 32);
  typename F::Header headers[kWarpRowTiles];
  typename F::Payload payloads[kWarpRowTiles];
#pragma unroll
  for (int r = 0; r < kWarpRowTiles; ++r) {
    const std::byte* tile = reinterpret_cast<const std::byte*>(stage.weights[first_row_tile + r]);
    headers[r] = F::template LoadHeader<SharedMemory>(tile, lane);
    payloads[r] = F::template LoadPayload<SharedMemory>(tile + kLayout.header_bytes, lane);
  }
  MultiplyStep<F>(headers, payloads, SharedX{stage.x[first_token + lane / 4]}, sums);
}

// blockIdx: (tile of kTokens places, kTiledRowTiles row tiles, batch).
template <class F, int kWarpTokenTiles>
__global__ void __launch_bounds__(kTiledThreads) TiledKernel(const __grid_constant__ Product product) {
  constexpr int kTokens = TiledTokens(kWarpTokenTiles);
  using Shared = TiledShared<F, kTokens>;
  SLUICE_SHARED(Shared, shared);
  constexpr TileLayout kLayout = TileLayoutOf(F::kFormat);
  const Places places = CoverPlaces<kTokens>(product);
  if (places.count <= 0) return;
  const int32_t block_row_tile = static_cast<int32_t>(blockIdx.y) * kTiledRowTiles;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_row_tile = warp % 4 * kWarpRowTiles, warp_token = warp / 4 * kWarpTokenTiles * 8;
  const TiledLoader<F, kTokens> loader(product, places, block_row_tile);
  const int32_t steps = loader.k_tiles() * kLayout.steps;

#pragma unroll
  for (int i = 0; i < kTiledStages - 1; ++i) {
    if (i < steps) loader.Begin(i, shared.stages[i]);
    ptx::cp_async_commit();
  }
  float totals[kWarpRowTiles][kWarpTokenTiles][4] = {};
  int stage = 0;
  for (int32_t slice = 0, step = 0; slice < kSlices; ++slice) {
    float sums[kWarpRowTiles][kWarpTokenTiles][4] = {};
    for (const int32_t end = SliceStart(slice + 1, loader.k_tiles()) * kLayout.steps; step < end; ++step) {
      ptx::cp_async_wait<kTiledStages - 2>();
      __syncthreads();  // the step has arrived, and all warps are done with the one before it, whose stage is free
      const int free_stage = stage == 0 ? kTiledStages - 1 : stage - 1;
      if (step + kTiledStages - 1 < steps) loader.Begin(step + kTiledStages - 1, shared.stages[free_stage]);
      ptx::cp_async_commit();
      MultiplyStage<F>(shared.stages[stage], warp_row_tile, warp_token, sums);
      stage = stage == kTiledStages - 1 ? 0 : stage + 1;
    }
#pragma unroll
    for (int r = 0; r < kWarpRowTiles; ++r)
#pragma unroll
      for (int t = 0; t < kWarpTokenTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) totals[r][t][i] += sums[r][t][i];
  }

  ptx::cp_async_wait<0>();
  __syncthreads();  // the stages become sums
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, q = lane % 4;
#pragma unroll
  for (int r = 0; r < kWarpRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kWarpTokenTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        *reinterpret_cast<float2*>(
            &shared.sums[(warp_row_tile + r) * kTileRows + g + i / 2 * 8][warp_token + t * 8 + q * 2]) =
            make_float2(totals[r][t][i], totals[r][t][i + 1]);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTiledRowTiles * 8 * kTokens; i += kTiledThreads) {
    const int row = i % 8, r = i / 8 % kTiledRowTiles, token = i / (8 * kTiledRowTiles);
    if (token >= places.count || block_row_tile + r >= loader.row_tiles()) continue;
    Finish(product, places, places.first + token, block_row_tile + r, row, shared.sums[r * kTileRows + row][token],
           shared.sums[r * kTileRows + row + 8][token]);
  }
}

template <class F, int kWarpTokenTiles>
void LaunchTiledTile(const Product& product, Stream stream) {
  constexpr int kTokens = TiledTokens(kWarpTokenTiles);
  const GemmArgs& gemm = product.gemm;
  const int32_t row_blocks = (RowTiles(gemm.w.n, gemm.w.gated) + kTiledRowTiles - 1) / kTiledRowTiles;
  const dim3 grid(PlaceTiles(product, kTokens), row_blocks, product.num_batches);
  SLUICE_LAUNCH((TiledKernel<F, kWarpTokenTiles>), grid, kTiledThreads, sizeof(TiledShared<F, kTokens>), stream,
                product);
}

// Scales and their partial sums leave no registers for the wider tile.
template <class F>
void LaunchTiled(const Product& product, int32_t tokens, Stream stream) {
  if constexpr (!F::kScaled) {
    if (tokens > 64) return LaunchTiledTile<F, 8>(product, stream);
  }
  LaunchTiledTile<F, 4>(product, stream);
}

}  // namespace sluice::cuda
