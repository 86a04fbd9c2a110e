// Absorbed attention of MLA on tensor cores: one head of keys, whose first kValueDim columns are the values.
//
// A block takes some items of one row for 16 heads. A tile of 64 keys lies in shared memory once for both products:
// each of four warps scores 16 of the keys, the scores go through shared memory to all warps, each weighs them alike
// and sums its share of the value columns.
//
//                 kDim columns of a tile (576 = 512 + 64 in DeepSeek), 16 query rows = heads
//               |<------------ values ------------>|<- rope ->|
//   keys  0..15 |                                             |  warp 0: scores of 16 heads x 16 keys
//   keys 16..31 |                                             |  warp 1           |
//   keys 32..47 |                                             |  warp 2           v
//   keys 48..63 |                                             |  warp 3    shared.scores [16 heads][64 keys]
//                                                                                 | read by all four warps
//               | warp 0 | warp 1  | warp 2 | warp 3 |                            v
//               |  sums 64 weights x 64 keys of its  |  <-----------  weights, the same in every warp
//               |  kColumns = 128 columns            |
//
// Worked example: kValueDim 2, one head, q = (1, 1 | 1), scale ln 2, so that a score is the dot product (scores are in
// units of log 2).
//   key 0 = (1, 0 | 1): s = 2, weight 2^(2 - 2) = 1           m = 2, l = 1.5
//   key 1 = (0, 1 | 0): s = 1, weight 2^(1 - 2) = 0.5         O = 1 (1, 0) + 0.5 (0, 1) = (1, 0.5), out = (2/3, 1/3)
#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "engine/ops/cuda/kernels/attention_output.cuh"
#include "engine/ops/cuda/kernels/attention_plan.cuh"
#include "engine/ops/cuda/kernels/attention_ring.cuh"
#include "engine/ops/cuda/kernels/attention_tile.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kKeysPerWarp = kAttentionTile / kWarps;

template <class T, int kDim, int kValueDim>
struct LatentShared {
  // Of the value columns that a warp sums; small models leave warps without any.
  static constexpr int kColumns = kValueDim / kWarps > 16 ? kValueDim / kWarps : 16;
  static constexpr int kScoreRow = kAttentionTile + 8;  // rows that are written together lie in different banks

  alignas(128) uint8_t tiles[2][kAttentionTile * SharedRow(kDim)];
  float scores[kMmaRows][kScoreRow];
  typename QueryRows<T, kDim>::Shared query;
  float2 total[kWarps][kColumns / 8][2][32];  // of each 8 columns, row and lane
};

// The tiles that hold keys in a range, two in flight.
template <class T, int kDim, int kValueDim>
class LatentTiles {
 public:
  __device__ LatentTiles(const AttentionKernelArgs& args, int32_t sequence, const KeyRange& reach,
                         LatentShared<T, kDim, kValueDim>& shared)
      : pages_(args, sequence, reach),
        data_(static_cast<const uint8_t*>(args.kv.data)),
        shared_(shared),
        tile_(reach.begin / kAttentionTile * kAttentionTile) {
    __syncthreads();  // the last reader is done
    pages_.FindBlocks(tile_);
    Fetch(0);
    Fetch(1);
  }

  __device__ __forceinline__ const uint8_t* Next() {
    ptx::cp_async_wait<1>();
    __syncthreads();
    return shared_.tiles[place_];
  }

  // After all work on what Next gave.
  __device__ __forceinline__ void Release() {
    __syncthreads();
    Fetch(place_);
    place_ ^= 1;
  }

  __device__ void Finish() { ptx::cp_async_wait<0>(); }

 private:
  // Beyond the last tile an empty group keeps the count.
  __device__ __forceinline__ void Fetch(int place) {
    if (tile_ < pages_.reach().end) {
      pages_.template Copy<kDim, kAttentionTile>(data_, tile_, shared_.tiles[place]);
      tile_ += kAttentionTile;
      if (tile_ % kAttentionItem == 0) pages_.FindBlocks(tile_);
    }
    ptx::cp_async_commit();
  }

  SequencePages<kWarps * 32> pages_;
  const uint8_t* data_;
  LatentShared<T, kDim, kValueDim>& shared_;
  int32_t tile_;  // of the next fetch
  int place_ = 0;
};

template <class T, int kDim, int kValueDim, int kColumns>
__device__ __forceinline__ void RunLatentTile(const uint8_t* keys, const QueryRows<T, kDim>& query,
                                              const ScoreRule& rule, int32_t tile, const KeyRange (&visible)[2],
                                              bool all_visible, LatentShared<T, kDim, kValueDim>& shared,
                                              ItemState<kColumns>& state) {
  const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  float scores[8][4];
  ScoreKeys<T, kDim, kKeysPerWarp>(query, keys + warp * kKeysPerWarp * SharedRow(kDim), 0, scores);
#pragma unroll
  for (int n = 0; n < kKeysPerWarp / 8; ++n) {
    const int at = warp * kKeysPerWarp + n * 8 + column;
    *reinterpret_cast<float2*>(&shared.scores[row][at]) = {scores[n][0], scores[n][1]};
    *reinterpret_cast<float2*>(&shared.scores[row + 8][at]) = {scores[n][2], scores[n][3]};
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kAttentionTile / 8; ++n) {
    const float2 first = *reinterpret_cast<const float2*>(&shared.scores[row][n * 8 + column]);
    const float2 second = *reinterpret_cast<const float2*>(&shared.scores[row + 8][n * 8 + column]);
    scores[n][0] = first.x;
    scores[n][1] = first.y;
    scores[n][2] = second.x;
    scores[n][3] = second.y;
  }
  FinishScores(rule, tile, visible, all_visible, scores);
  uint32_t weights[4][4];
  Weigh<T>(scores, state, weights);
  if (warp * kColumns < kValueDim) {
    AddValues<T, kAttentionTile, SharedRow(kDim)>(weights, 0, keys + warp * kColumns * 2, state);
  }
}

// Items of a row for heads first_head .. first_head + 15. `slot`: where the one item of a part goes that is not all.
template <class T, int kDim, int kValueDim>
__device__ void RunLatentRow(const AttentionKernelArgs& args, const AttentionPart& part, int32_t first_head,
                             LatentShared<T, kDim, kValueDim>& shared) {
  constexpr int kColumns = LatentShared<T, kDim, kValueDim>::kColumns;
  const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int32_t heads[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    heads[r] = first_head + lane / 4 + 8 * r;
    if (heads[r] >= args.num_heads) heads[r] = -1;
  }
  const KeyRange keys = VisibleKeys(args.mask, args.step.positions[part.row]);
  const KeyRange reach = {max(keys.begin, part.first_item * kAttentionItem),
                          min(keys.end, part.end_item * kAttentionItem)};
  LatentTiles<T, kDim, kValueDim> tiles(args, args.step.row_sequences[part.row], reach, shared);
  QueryRows<T, kDim> query;
  query.Load({QueryOf(args, part.row, heads[0]), QueryOf(args, part.row, heads[1])}, shared.query, warp, kWarps);

  const ScoreRule rule(args.scale, args.softcap);
  const KeyRange visible[2] = {reach, reach};
  float2* const stored[2] = {&shared.total[warp][0][0][lane], &shared.total[warp][0][1][lane]};
  const bool apart = !Contains(reach, keys.begin, keys.end);
  SoftmaxState total[2];
  ItemState<kColumns> state;
  RunItems(
      reach, state,
      [&](int32_t tile) {
        RunLatentTile(tiles.Next(), query, rule, tile, visible, Contains(reach, tile, tile + kAttentionTile), shared,
                      state);
        tiles.Release();
      },
      [&](bool first, bool last) {
        if (!apart) JoinTotal(stored, 64, first, last, total, state);
      });
  tiles.Finish();
  if (warp * kColumns >= kValueDim) return;
  if (apart) {
    StorePartial<kValueDim>(args, part.slot, heads, state, warp * kColumns);
  } else {
    StoreRows<kValueDim>(args, {part.row, part.row}, heads, total, state, warp * kColumns);
  }
}

// Parts of the plan, for 16 heads each.
template <class T, int kDim, int kValueDim>
__global__ void __launch_bounds__(kWarps * 32, 1) LatentPartsKernel(const __grid_constant__ AttentionKernelArgs args) {
  using Shared = LatentShared<T, kDim, kValueDim>;
  SLUICE_SHARED(Shared, shared);
  const AttentionPlanView plan(args.plan);
  const int32_t head_tiles = (args.num_heads + kMmaRows - 1) / kMmaRows;
  const int32_t work = args.plan.counts[kNumParts] * head_tiles;
  for (int32_t i = static_cast<int32_t>(blockIdx.x); i < work; i += static_cast<int32_t>(gridDim.x)) {
    RunLatentRow<T, kDim, kValueDim>(args, plan.parts[i / head_tiles], i % head_tiles * kMmaRows, shared);
  }
}

// Rows of sequences that have several, which are no parts: block x a row, the last first; y its heads.
template <class T, int kDim, int kValueDim>
__global__ void __launch_bounds__(kWarps * 32, 1) LatentRowsKernel(const __grid_constant__ AttentionKernelArgs args) {
  using Shared = LatentShared<T, kDim, kValueDim>;
  SLUICE_SHARED(Shared, shared);
  const int32_t row = args.step.num_tokens - 1 - static_cast<int32_t>(blockIdx.x);
  const int32_t sequence = args.step.row_sequences[row];
  if (!TakesRow(args.step, row, sequence) || RowsTaken(args.step, sequence) == 1) return;
  const KeyRange keys = VisibleKeys(args.mask, args.step.positions[row]);
  const AttentionPart part = {row, keys.begin / kAttentionItem, (keys.end - 1) / kAttentionItem + 1, -1};
  RunLatentRow<T, kDim, kValueDim>(args, part, static_cast<int32_t>(blockIdx.y) * kMmaRows, shared);
}

}  // namespace

template <class T, int kDim, int kValueDim>
void LaunchLatentAttention(const AttentionKernelArgs& args, Stream stream) {
  using Shared = LatentShared<T, kDim, kValueDim>;
  const unsigned head_tiles = static_cast<unsigned>((args.num_heads + kMmaRows - 1) / kMmaRows);
  if (!IsDecodeStep(args.step)) {
    SLUICE_LAUNCH((LatentRowsKernel<T, kDim, kValueDim>), dim3(static_cast<unsigned>(args.step.num_tokens), head_tiles),
                  dim3(kWarps * 32), sizeof(Shared), stream, args);
  }
  SLUICE_LAUNCH((LatentPartsKernel<T, kDim, kValueDim>), dim3(static_cast<unsigned>(args.num_sms)), dim3(kWarps * 32),
                sizeof(Shared), stream, args);
  LaunchMergeAttention(args, stream);
}

#define SLUICE_INSTANCE(T, kDim, kValueDim) \
  template void LaunchLatentAttention<T, kDim, kValueDim>(const AttentionKernelArgs&, Stream);
SLUICE_LATENT_INSTANCES(SLUICE_INSTANCE)

}  // namespace sluice::cuda
