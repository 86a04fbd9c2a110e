// Attention of single rows on tensor cores, and the merge of their items.
//
// A warp takes one item of one row for up to 16 heads of a KV head: alone, with a ring of half tiles in shared memory
// that its own asynchronous copies fill ahead of it, so that no warp ever waits for another.
#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "engine/ops/cuda/kernels/attention_output.cuh"
#include "engine/ops/cuda/kernels/attention_plan.cuh"
#include "engine/ops/cuda/kernels/attention_ring.cuh"
#include "engine/ops/cuda/kernels/attention_tile.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMaxSharedBytes = 227 * 1024;  // of a block, and of all blocks on an SM

template <class T, int kDim, int kValueDim>
struct DecodeShared {
  using Ring = HalfTileRing<kDim, kValueDim, 32>;
  struct Warp {
    typename Ring::Stages stages;
    typename QueryRows<T, kDim>::Shared query;
  };
  static constexpr int kWarps = 4 * sizeof(Warp) <= kMaxSharedBytes ? 4 : 3;
  Warp warps[kWarps];
};

// One part for up to 16 heads.
template <class T, int kDim, int kValueDim>
__device__ void RunPart(const AttentionKernelArgs& args, const AttentionPart& part, int32_t kv_head, int32_t row_tile,
                        typename DecodeShared<T, kDim, kValueDim>::Warp& shared) {
  const int32_t group = args.num_heads / args.kv.num_kv_heads;
  const int32_t lane = threadIdx.x % 32;
  // The lane's two rows: heads of the group, or -1.
  int32_t heads[2];
  const __nv_bfloat16* queries[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int32_t in_group = row_tile * kMmaRows + lane / 4 + 8 * r;
    heads[r] = in_group < group ? kv_head * group + in_group : -1;
    queries[r] = QueryOf(args, part.row, heads[r]);
  }
  const KeyRange keys = VisibleKeys(args.mask, args.step.positions[part.row]);
  const KeyRange reach = {max(keys.begin, part.first_item * kAttentionItem),
                          min(keys.end, part.end_item * kAttentionItem)};
  typename DecodeShared<T, kDim, kValueDim>::Ring ring(args, args.step.row_sequences[part.row], kv_head, reach,
                                                       shared.stages);
  QueryRows<T, kDim> query;
  query.Load(queries, shared.query);
  __syncwarp();

  const ScoreRule rule(args.scale, args.softcap);
  const KeyRange visible[2] = {reach, reach};
  const bool apart = !Contains(reach, keys.begin, keys.end);
  SoftmaxState total[2];
  ItemState<kValueDim> state;
  RunItems(
      reach, state,
      [&](int32_t tile) {
        RunTile(ring, query, rule, tile, visible, true, Contains(reach, tile, tile + kAttentionTile), state);
      },
      [&](bool first, bool last) {
        if (apart) return;
        float2* stored[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float* partial = heads[r] < 0 ? nullptr : PartialOf(args, part.slot, heads[r], kValueDim);
          stored[r] = heads[r] < 0 ? nullptr : reinterpret_cast<float2*>(partial) + lane % 4;
        }
        JoinTotal(stored, 4, first, last, total, state);
      });
  ring.Finish();
  if (apart) {
    StorePartial<kValueDim>(args, part.slot, heads, state);
  } else {
    StoreRows<kValueDim>(args, {part.row, part.row}, heads, total, state);
  }
}

template <class T, int kDim, int kValueDim>
__global__ void __launch_bounds__(DecodeShared<T, kDim, kValueDim>::kWarps * 32)
    DecodeKernel(const __grid_constant__ AttentionKernelArgs args) {
  using Shared = DecodeShared<T, kDim, kValueDim>;
  SLUICE_SHARED(Shared, shared);
  const AttentionPlanView plan(args.plan);
  // Neighbours in memory to neighbours in time; few of them to many SMs. All of this is found again for each piece of
  // work: registers are short meanwhile.
  const int32_t warp = threadIdx.x / 32;
  for (int32_t i = warp * static_cast<int32_t>(gridDim.x) + static_cast<int32_t>(blockIdx.x);;
       i += Shared::kWarps * static_cast<int32_t>(gridDim.x)) {
    const int32_t kv_heads = args.kv.num_kv_heads;
    const int32_t row_tiles = (args.num_heads / kv_heads + kMmaRows - 1) / kMmaRows;
    const int32_t part = i / (row_tiles * kv_heads);
    if (part >= args.plan.counts[kNumParts]) break;
    RunPart<T, kDim, kValueDim>(args, plan.parts[part], i / row_tiles % kv_heads, i % row_tiles, shared.warps[warp]);
  }
}

}  // namespace

template <class T, int kDim, int kValueDim>
void LaunchDecodeAttention(const AttentionKernelArgs& args, Stream stream) {
  using Shared = DecodeShared<T, kDim, kValueDim>;
  constexpr int kBlocks = sizeof(Shared) <= kMaxSharedBytes / 2 ? 2 : 1;  // on an SM
  SLUICE_LAUNCH((DecodeKernel<T, kDim, kValueDim>), dim3(static_cast<unsigned>(args.num_sms * kBlocks)),
                dim3(Shared::kWarps * 32), sizeof(Shared), stream, args);
  LaunchMergeAttention(args, stream);
}

#define SLUICE_INSTANCE(T, kDim, kValueDim) \
  template void LaunchDecodeAttention<T, kDim, kValueDim>(const AttentionKernelArgs&, Stream);
SLUICE_ATTENTION_INSTANCES(SLUICE_INSTANCE)

}  // namespace sluice::cuda
