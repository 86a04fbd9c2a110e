#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/kv_store.cuh"
#include "engine/ops/cuda/kernels/qkv.h"
#include "engine/ops/cuda/kernels/reduce.cuh"
#include "engine/ops/cuda/kernels/rope.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;  // of the kernel with a warp a head
constexpr int kFullWidthWarps = 8;

__device__ float Temperature(const QkvPostArgs& args, int32_t position) {
  if (!args.has_temperature) return 1;
  const double steps = floor((position + 1) / double(args.temperature_floor));
  return float(1 + double(args.temperature_coef) * log1p(steps));
}

// A row of q|k|v and what is to be done with it.
class Row {
 public:
  __device__ Row(const QkvPostArgs& args, int32_t token)
      : args_(args),
        token_(token),
        position_(args.step.positions[token]),
        rope_length_(args.rope.rule == LengthRule::kNone ? 0 : args.step.rope_classes[args.step.row_sequences[token]]),
        slot_(args.group.slot_mapping[token]) {}

  // Heads of q, then of k; then those of v.
  __device__ int32_t num_turned() const { return args_.num_heads + args_.kv.num_kv_heads; }
  __device__ const float* turned_head(int32_t head) const { return row() + int64_t{head} * args_.kv.head_dim; }

  __device__ Rotation rotation(int32_t pair) const { return RotationOf(args_.rope, pair, position_, rope_length_); }
  __device__ bool turns(int32_t pair) const { return 2 * pair < args_.rope.num_rotary; }

  // Pair `pair` of head `head` of q and k, all done.
  __device__ void Store(int32_t head, PairColumns columns, float2 v, float temperature) const {
    if (head < args_.num_heads) {
      const int64_t first = (int64_t{token_} * args_.num_heads + head) * args_.kv.head_dim;
      StoreElement(args_.q, args_.q_element, first + columns.first, v.x * temperature);
      StoreElement(args_.q, args_.q_element, first + columns.second, v.y * temperature);
    } else if (slot_ >= 0) {
      const int64_t first = KeyIndex(args_.kv, slot_, head - args_.num_heads);
      StoreKv(args_.kv, first + columns.first, v.x);
      StoreKv(args_.kv, first + columns.second, v.y);
    }
  }

  // Head `head` of v, by `step` threads.
  __device__ void StoreValue(int32_t head, int32_t first, int32_t step) const {
    if (slot_ < 0) return;
    const int32_t dim = args_.kv.value_head_dim;
    const float* v = turned_head(num_turned()) + int64_t{head} * dim;
    const int64_t index = ValueIndex(args_.kv, slot_, head);
    for (int32_t i = first; i < dim; i += step) StoreKv(args_.kv, index + i, v[i]);
  }

  __device__ float temperature() const { return Temperature(args_, position_); }

 private:
  __device__ const float* row() const {
    const int64_t width = int64_t{num_turned()} * args_.kv.head_dim + args_.kv.num_kv_heads * args_.kv.value_head_dim;
    return args_.qkv + token_ * width;
  }

  const QkvPostArgs& args_;
  const int32_t token_, position_, rope_length_, slot_;
};

__device__ float2 Weighted(const NormWeightsView& norm, float2 v, float scale, int32_t first, int32_t second) {
  v = {v.x * scale, v.y * scale};
  if (norm.weight == nullptr) return v;
  const float offset = norm.params.weight_offset;
  return {v.x * (norm.weight[first] + offset), v.y * (norm.weight[second] + offset)};
}

// ---------------------------------------------------------------- norms of single heads

// v holds the pairs lane, lane + 32, ... of a head; those after its end are 0 and stay so.
template <int kPairs>
__device__ void NormHead(const QkvPostArgs& args, const NormWeightsView& norm, int32_t lane, float2 (&v)[kPairs]) {
  const int32_t dim = args.kv.head_dim;
  if (norm.params.kind == NormKind::kLayer) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) sum += v[i].x + v[i].y;
    const float mean = WarpReduce(sum, Plus()) / float(dim);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (2 * (lane + i * kWarpLanes) < dim) v[i] = {v[i].x - mean, v[i].y - mean};
    }
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) squares = fmaf(v[i].y, v[i].y, fmaf(v[i].x, v[i].x, squares));
  const float scale = 1 / sqrtf(WarpReduce(squares, Plus()) / float(dim) + norm.params.eps);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int32_t pair = lane + i * kWarpLanes;
    if (2 * pair >= dim) continue;
    const PairColumns columns = ColumnsOf(args.rope, pair);
    v[i] = Weighted(norm, v[i], scale, columns.first, columns.second);
  }
}

// A warp a head, of up to 64 * kPairs columns. blockIdx.x: token; blockIdx.y: heads.
template <int kPairs>
__global__ void __launch_bounds__(kWarpsPerBlock* kWarpLanes)
    PostHeadsKernel(const __grid_constant__ QkvPostArgs args) {
  const int32_t token = blockIdx.x, lane = threadIdx.x % kWarpLanes;
  const int32_t head = blockIdx.y * kWarpsPerBlock + threadIdx.x / kWarpLanes;
  if (args.step.row_sequences[token] < 0) return;
  const Row row(args, token);
  if (head >= row.num_turned()) {
    const int32_t value_head = head - row.num_turned();
    if (value_head < args.kv.num_kv_heads) row.StoreValue(value_head, lane, kWarpLanes);
    return;
  }
  const float* x = row.turned_head(head);
  float2 v[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int32_t pair = lane + i * kWarpLanes;
    const PairColumns columns = ColumnsOf(args.rope, pair);
    v[i] = 2 * pair < args.kv.head_dim ? float2{x[columns.first], x[columns.second]} : float2{0, 0};
  }
  const bool is_query = head < args.num_heads, has_norm = args.qk_norm != QkNormKind::kNone;
  NormWeightsView norm = is_query ? args.q_norm : args.k_norm;
  if (args.qk_norm == QkNormKind::kL2PerHead) norm.weight = nullptr;
  if (has_norm && !args.norm_after_rope) NormHead(args, norm, lane, v);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int32_t pair = lane + i * kWarpLanes;
    if (row.turns(pair)) v[i] = Rotate(v[i], row.rotation(pair));
  }
  if (has_norm && args.norm_after_rope) NormHead(args, norm, lane, v);
  const float temperature = is_query ? row.temperature() : 1;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int32_t pair = lane + i * kWarpLanes;
    if (2 * pair < args.kv.head_dim) row.Store(head, ColumnsOf(args.rope, pair), v[i], temperature);
  }
}

// ---------------------------------------------------------------- norms of all heads together

constexpr int kMaxHeadDim = 512;

struct FullWidthShared {
  float partials[kFullWidthWarps];
  Rotation rotations[kMaxHeadDim / 2];
};

// Heads [first_head, end_head), which have one norm.
__device__ void PostFullWidth(const QkvPostArgs& args, const Row& row, const NormWeightsView& norm, int32_t first_head,
                              int32_t end_head, float temperature, FullWidthShared& shared) {
  constexpr int kThreads = kFullWidthWarps * kWarpLanes;
  const int32_t dim = args.kv.head_dim, pairs_per_head = dim / 2, end = (end_head - first_head) * pairs_per_head;
  const float width = float((end_head - first_head) * dim);
  const auto value = [&](int32_t i) {
    const float* x = row.turned_head(first_head + i / pairs_per_head);
    const int32_t pair = i % pairs_per_head;
    const PairColumns columns = ColumnsOf(args.rope, pair);
    const float2 v = {x[columns.first], x[columns.second]};
    return args.norm_after_rope && row.turns(pair) ? Rotate(v, shared.rotations[pair]) : v;
  };
  float mean = 0;
  if (norm.params.kind == NormKind::kLayer) {
    float sum = 0;
    for (int32_t i = threadIdx.x; i < end; i += kThreads) {
      const float2 v = value(i);
      sum += v.x + v.y;
    }
    mean = BlockReduce(sum, Plus(), shared.partials) / width;
  }
  float squares = 0;
  for (int32_t i = threadIdx.x; i < end; i += kThreads) {
    const float2 v = value(i);
    squares = fmaf(v.y - mean, v.y - mean, fmaf(v.x - mean, v.x - mean, squares));
  }
  const float scale = 1 / sqrtf(BlockReduce(squares, Plus(), shared.partials) / width + norm.params.eps);
  for (int32_t i = threadIdx.x; i < end; i += kThreads) {
    const int32_t head = i / pairs_per_head, pair = i % pairs_per_head;
    const PairColumns columns = ColumnsOf(args.rope, pair);
    float2 v = value(i);
    v = Weighted(norm, {v.x - mean, v.y - mean}, scale, head * dim + columns.first, head * dim + columns.second);
    if (!args.norm_after_rope && row.turns(pair)) v = Rotate(v, shared.rotations[pair]);
    row.Store(first_head + head, columns, v, temperature);
  }
}

// A block a token.
__global__ void __launch_bounds__(kFullWidthWarps* kWarpLanes)
    PostFullWidthKernel(const __grid_constant__ QkvPostArgs args) {
  SLUICE_SHARED(FullWidthShared, shared);
  const int32_t token = blockIdx.x;
  if (args.step.row_sequences[token] < 0) return;
  const Row row(args, token);
  for (int32_t pair = threadIdx.x; row.turns(pair); pair += kFullWidthWarps * kWarpLanes) {
    shared.rotations[pair] = row.rotation(pair);
  }
  __syncthreads();
  PostFullWidth(args, row, args.q_norm, 0, args.num_heads, row.temperature(), shared);
  PostFullWidth(args, row, args.k_norm, args.num_heads, row.num_turned(), 1, shared);
  for (int32_t head = threadIdx.x / kWarpLanes; head < args.kv.num_kv_heads; head += kFullWidthWarps) {
    row.StoreValue(head, threadIdx.x % kWarpLanes, kWarpLanes);
  }
}

template <int kPairs>
void LaunchHeads(const QkvPostArgs& args, Stream stream) {
  const int32_t heads = args.num_heads + 2 * args.kv.num_kv_heads;
  const dim3 grid(unsigned(args.step.num_tokens), unsigned((heads + kWarpsPerBlock - 1) / kWarpsPerBlock));
  SLUICE_LAUNCH(PostHeadsKernel<kPairs>, grid, dim3(kWarpsPerBlock * kWarpLanes), 0, stream, args);
}

}  // namespace

void LaunchQkvPost(const QkvPostArgs& args, Stream stream) {
  if (args.step.num_tokens == 0) return;
  if (args.qk_norm == QkNormKind::kFullWidth) {
    SLUICE_LAUNCH(PostFullWidthKernel, dim3(unsigned(args.step.num_tokens)), dim3(kFullWidthWarps * kWarpLanes),
                  sizeof(FullWidthShared), stream, args);
    return;
  }
  if (args.kv.head_dim <= 64) return LaunchHeads<1>(args, stream);
  if (args.kv.head_dim <= 128) return LaunchHeads<2>(args, stream);
  if (args.kv.head_dim <= 256) return LaunchHeads<4>(args, stream);
  LaunchHeads<8>(args, stream);
}

}  // namespace sluice::cuda
