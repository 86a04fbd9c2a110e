#include "engine/ops/cuda/kernels/attention_plan.cuh"
#include "engine/ops/cuda/kernels/attention_rows.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

// What rows before this one take.
struct Sums {
  int32_t slots, parts, merges, tiles;
};

__device__ Sums operator+(const Sums& a, const Sums& b) {
  return {a.slots + b.slots, a.parts + b.parts, a.merges + b.merges, a.tiles + b.tiles};
}

struct PlanShared {
  Sums warps[kThreads / 32];
};

// The sums over the threads before this one; *total over all.
__device__ Sums SumBefore(const Sums& own, PlanShared& shared, Sums* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Sums upto = own;
  for (int distance = 1; distance < 32; distance *= 2) {
    const Sums other = {
        __shfl_up_sync(0xffffffffu, upto.slots, distance), __shfl_up_sync(0xffffffffu, upto.parts, distance),
        __shfl_up_sync(0xffffffffu, upto.merges, distance), __shfl_up_sync(0xffffffffu, upto.tiles, distance)};
    if (lane >= distance) upto = upto + other;
  }
  if (lane == 31) shared.warps[warp] = upto;
  __syncthreads();
  Sums before = {upto.slots - own.slots, upto.parts - own.parts, upto.merges - own.merges, upto.tiles - own.tiles};
  *total = {};
  for (int i = 0; i < kThreads / 32; ++i) {
    if (i < warp) before = before + shared.warps[i];
    *total = *total + shared.warps[i];
  }
  __syncthreads();  // the next call writes `warps`
  return before;
}

// One block. A thread a row, ascending.
__global__ void __launch_bounds__(kThreads)
    PlanKernel(const __grid_constant__ StepArrays step, const __grid_constant__ AttentionMask mask,
               const int32_t tile_tokens, const __grid_constant__ AttentionPlan plan) {
  SLUICE_SHARED(PlanShared, shared);
  const AttentionPlanView view(plan);
  const int64_t split_slots = AttentionPlanSizes(plan.limits).split_slots;
  const bool decode_step = IsDecodeStep(step);
  Sums done = {};
  for (int32_t first = 0; first < step.num_tokens; first += kThreads) {
    const int32_t row = first + static_cast<int32_t>(threadIdx.x);
    const int32_t sequence = row < step.num_tokens ? step.row_sequences[row] : -1;
    int32_t first_item = 0, num_items = 0;
    bool begins_tile = false;
    if (TakesRow(step, row, sequence)) {
      if (decode_step || RowsTaken(step, sequence) == 1) {
        const KeyRange keys = VisibleKeys(mask, step.positions[row]);
        first_item = keys.begin / kAttentionItem;
        num_items = (keys.end - 1) / kAttentionItem + 1 - first_item;
      } else {
        begins_tile = (row - step.row_starts[sequence]) % tile_tokens == 0;
      }
    }
    // Slots are handed out in the order of rows, also to rows that then find too few left.
    Sums total;
    const int32_t slot = done.slots + SumBefore({num_items > 1 ? num_items : 0, 0, 0, 0}, shared, &total).slots;
    done.slots += total.slots;
    const bool split = num_items > 1 && int64_t{slot} + num_items <= split_slots;
    const Sums own = {0, split ? num_items : num_items > 0, split, begins_tile};
    const Sums at = done + SumBefore(own, shared, &total);
    done = done + total;

    if (split) {
      view.merges[at.merges] = {row, slot, num_items};
      for (int32_t i = 0; i < num_items; ++i) {
        view.parts[at.parts + i] = {row, first_item + i, first_item + i + 1, slot + i};
      }
    } else if (num_items > 0) {
      const int32_t own_slot = static_cast<int32_t>(split_slots) + (decode_step ? row : sequence);
      view.parts[at.parts] = {row, first_item, first_item + num_items, own_slot};
    } else if (begins_tile) {
      view.tiles[at.tiles] = {sequence, row};
    }
  }
  if (threadIdx.x == 0) {
    plan.counts[kNumParts] = done.parts;
    plan.counts[kNumMerges] = done.merges;
    plan.counts[kNumTiles] = done.tiles;
  }
}

}  // namespace

int64_t AttentionPlanInts(const AttentionLimits& limits) {
  const AttentionPlanSizes sizes(limits);
  return (sizes.parts * static_cast<int64_t>(sizeof(AttentionPart)) +
          sizes.merges * static_cast<int64_t>(sizeof(AttentionMerge)) +
          sizes.tiles * static_cast<int64_t>(sizeof(AttentionRowTile))) /
         4;
}

int64_t AttentionPartialFloats(const AttentionLimits& limits, int32_t num_heads, int32_t value_dim) {
  return AttentionPlanSizes(limits).slots * num_heads * AttentionPartialStride(value_dim);
}

void LaunchPlanAttention(const StepArrays& step, AttentionMask mask, int32_t num_rows_per_token,
                         const AttentionPlan& plan, Stream stream) {
  SLUICE_LAUNCH(PlanKernel, dim3(1), dim3(kThreads), sizeof(PlanShared), stream, step, mask,
                AttentionTileTokens(num_rows_per_token), plan);
}

}  // namespace sluice::cuda
