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

__device__ inline int32_t TokensOf(const AttentionKernelArgs& args, const AttentionRowTile& tile) {
  return min(AttentionTileTokens(args.num_heads / args.kv.num_kv_heads),
             args.step.row_ends[tile.sequence] - tile.first_row);
}

// The lane's two of a warp's 16 query rows, from `first` of the tile's on: place in the step, and head or -1.
struct LaneRows {
  int32_t rows[2], heads[2];

  __device__ LaneRows(const AttentionKernelArgs& args, const AttentionRowTile& tile, int32_t kv_head, int32_t first) {
    const int32_t group = args.num_heads / args.kv.num_kv_heads, count = TokensOf(args, tile) * group;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t i = first + static_cast<int32_t>(threadIdx.x) % 32 / 4 + 8 * r;
      rows[r] = tile.first_row + i / group;
      heads[r] = i < count ? kv_head * group + i % group : -1;
    }
  }
};

// What the same rows see.
struct RowKeys {
  KeyRange visible[2];  // of the lane's
  KeyRange any, all;    // keys that one of the warp's rows sees, or each

  __device__ RowKeys(const AttentionKernelArgs& args, const AttentionRowTile& tile, int32_t first) {
    const int32_t group = args.num_heads / args.kv.num_kv_heads, count = TokensOf(args, tile) * group;
    const int32_t position = args.step.positions[tile.first_row];
    const auto seen = [&](int32_t i) {
      return i < count ? VisibleKeys(args.mask, position + i / group) : KeyRange{0, 0};
    };
    const int32_t lane_row = first + static_cast<int32_t>(threadIdx.x) % 32 / 4;
    visible[0] = seen(lane_row);
    visible[1] = seen(lane_row + 8);
    const KeyRange earliest = seen(first), latest = seen(min(first + kMmaRows, count) - 1);
    any = first < count ? KeyRange{earliest.begin, latest.end} : KeyRange{0, 0};
    all = first < count ? KeyRange{latest.begin, earliest.end} : KeyRange{0, 0};
  }
};

// `first`: of the tile's query rows, the block's 64.
template <class T, int kDim, int kValueDim>
__device__ void RunRowTile(const AttentionKernelArgs& args, const AttentionRowTile& tile, int32_t kv_head,
                           int32_t first, PrefillShared<T, kDim, kValueDim>& shared) {
  const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int32_t position = args.step.positions[tile.first_row];
  const KeyRange reach = {VisibleKeys(args.mask, position).begin, position + TokensOf(args, tile)};
  typename PrefillShared<T, kDim, kValueDim>::Ring ring(args, tile.sequence, kv_head, reach, shared.stages);

  auto& room = shared.warps[warp];
  first += warp * kMmaRows;
  QueryRows<T, kDim> query;
  {
    const LaneRows rows(args, tile, kv_head, first);
    query.Load({QueryOf(args, rows.rows[0], rows.heads[0]), QueryOf(args, rows.rows[1], rows.heads[1])}, room.query);
  }
  __syncwarp();

  const ScoreRule rule(args.scale, args.softcap);
  const RowKeys keys(args, tile, first);
  SoftmaxState total[2];
  ItemState<kValueDim> state;
  RunItems(
      reach, state,
      [&](int32_t key) {
        const bool seen = key + kAttentionTile > keys.any.begin && key < keys.any.end;
        RunTile(ring, query, rule, key, keys.visible, seen, Contains(keys.all, key, key + kAttentionTile), state);
      },
      [&](bool first_item, bool last) {
        float2* const stored[2] = {&room.total[0][0][lane], &room.total[0][1][lane]};
        JoinTotal(stored, 64, first_item, last, total, state);
      });
  ring.Finish();
  const LaneRows rows(args, tile, kv_head, first);  // found again: registers are short in between
  StoreRows<kValueDim>(args, rows.rows, rows.heads, total, state);
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
