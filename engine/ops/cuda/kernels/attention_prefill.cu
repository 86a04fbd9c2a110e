// Attention of many rows of one sequence on tensor cores.
//
// A block takes 64 query rows (tokens times heads of a KV head's group), a warp 16 of them. Tiles of keys and values
// are shared by its warps; all items are taken in ascending order, the running total waits in shared memory.
#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "engine/ops/cuda/kernels/attention_output.cuh"
#include "engine/ops/cuda/kernels/attention_plan.cuh"
#include "engine/ops/cuda/kernels/attention_ring.cuh"
#include "engine/ops/cuda/kernels/attention_tile.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = kAttentionTileRows / kMmaRows;

template <class T, int kDim, int kValueDim>
struct PrefillShared {
  using Ring = HalfTileRing<kDim, kValueDim, kWarps * 32>;
  typename Ring::Stages stages;
  struct Warp {
    typename QueryRows<T, kDim>::Shared query;
    float2 total[kValueDim / 8][2][32];  // of each 8 columns, row and lane
  };
  Warp warps[kWarps];
};

// The query rows of a warp.
struct WarpRows {
  int32_t rows[2], heads[2];  // of the lane: place in the step, head or -1
  KeyRange visible[2];
  KeyRange any, all;  // keys that one of the warp's rows sees, or each
};

__device__ inline WarpRows RowsOfWarp(const AttentionKernelArgs& args, const AttentionRowTile& tile, int32_t num_tokens,
                                      int32_t kv_head, int32_t first) {
  const int32_t group = args.num_heads / args.kv.num_kv_heads, count = num_tokens * group;
  const int32_t position = args.step.positions[tile.first_row];
  const auto visible = [&](int32_t i) { return VisibleKeys(args.mask, position + i / group); };
  WarpRows warp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int32_t i = first + static_cast<int32_t>(threadIdx.x) % 32 / 4 + 8 * r;
    warp.rows[r] = tile.first_row + i / group;
    warp.heads[r] = i < count ? kv_head * group + i % group : -1;
    warp.visible[r] = i < count ? visible(i) : KeyRange{0, 0};
  }
  if (first < count) {
    const KeyRange earliest = visible(first), latest = visible(min(first + kMmaRows, count) - 1);
    warp.any = {earliest.begin, latest.end};
    warp.all = {latest.begin, earliest.end};
  } else {
    warp.any = warp.all = {0, 0};
  }
  return warp;
}

// `first`: of the tile's query rows, the block's 64.
template <class T, int kDim, int kValueDim>
__device__ void RunRowTile(const AttentionKernelArgs& args, const AttentionRowTile& tile, int32_t kv_head,
                           int32_t first, PrefillShared<T, kDim, kValueDim>& shared) {
  const int32_t group = args.num_heads / args.kv.num_kv_heads;
  const int32_t warp_index = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int32_t num_tokens = min(AttentionTileTokens(group), args.step.row_starts[tile.sequence + 1] - tile.first_row);
  const int32_t position = args.step.positions[tile.first_row];
  const KeyRange reach = {VisibleKeys(args.mask, position).begin, position + num_tokens};
  typename PrefillShared<T, kDim, kValueDim>::Ring ring(args, tile.sequence, kv_head, reach, shared.stages);

  auto& room = shared.warps[warp_index];
  const WarpRows warp = RowsOfWarp(args, tile, num_tokens, kv_head, first + warp_index * kMmaRows);
  QueryRows<T, kDim> query;
  query.Load({QueryOf(args, warp.rows[0], warp.heads[0]), QueryOf(args, warp.rows[1], warp.heads[1])}, room.query);
  __syncwarp();

  const ScoreRule rule(args.scale, args.softcap);
  float2* const stored[2] = {&room.total[0][0][lane], &room.total[0][1][lane]};
  SoftmaxState total[2];
  ItemState<kValueDim> state;
  RunItems(
      reach, state,
      [&](int32_t key) {
        const bool seen = key + kAttentionTile > warp.any.begin && key < warp.any.end;
        RunTile(ring, query, rule, key, warp.visible, seen, Contains(warp.all, key, key + kAttentionTile), state);
      },
      [&](bool first_item, bool last) { JoinTotal(stored, 64, first_item, last, total, state); });
  ring.Finish();
  StoreRows<kValueDim>(args, warp.rows, warp.heads, total, state);
}

// Block x: a tile and KV head, the longest first; y: 64 query rows of tiles that have more.
template <class T, int kDim, int kValueDim>
__global__ void __launch_bounds__(kWarps * 32) PrefillKernel(const __grid_constant__ AttentionKernelArgs args) {
  using Shared = PrefillShared<T, kDim, kValueDim>;
  SLUICE_SHARED(Shared, shared);
  const int32_t kv_heads = args.kv.num_kv_heads;
  const int32_t tile = args.plan.counts[kNumTiles] - 1 - static_cast<int32_t>(blockIdx.x) / kv_heads;
  if (tile < 0) return;
  RunRowTile<T, kDim, kValueDim>(args, AttentionPlanView(args.plan).tiles[tile],
                                 static_cast<int32_t>(blockIdx.x) % kv_heads,
                                 static_cast<int32_t>(blockIdx.y) * kAttentionTileRows, shared);
}

}  // namespace

template <class T, int kDim, int kValueDim>
void LaunchPrefillAttention(const AttentionKernelArgs& args, Stream stream) {
  const int32_t group = args.num_heads / args.kv.num_kv_heads;
  const int32_t tiles = MaxAttentionTiles(args.step, group);
  const int32_t row_tiles = (AttentionTileTokens(group) * group + kAttentionTileRows - 1) / kAttentionTileRows;
  SLUICE_LAUNCH((PrefillKernel<T, kDim, kValueDim>),
                dim3(static_cast<unsigned>(tiles * args.kv.num_kv_heads), static_cast<unsigned>(row_tiles)),
                dim3(kWarps * 32), sizeof(PrefillShared<T, kDim, kValueDim>), stream, args);
}

#define SLUICE_INSTANCE(T, kDim, kValueDim) \
  template void LaunchPrefillAttention<T, kDim, kValueDim>(const AttentionKernelArgs&, Stream);
SLUICE_ATTENTION_INSTANCES(SLUICE_INSTANCE)

}  // namespace sluice::cuda
