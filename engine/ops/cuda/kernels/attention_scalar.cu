// Attention in plain code: a warp for each row and head, all items one after the other. For what the mma kernels do not
// take: f32 activations or cache, fp8 caches, unusual head sizes.
#include <algorithm>

#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "engine/ops/cuda/kernels/attention_rows.cuh"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/reduce.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kKeysPerLane = kAttentionTile / 32;

// Shared memory of one warp.
struct WarpRoom {
  float* q;        // [head_dim]
  float* weights;  // [kAttentionTile]
  float* item;     // [value_dim] lane l has values l, l + 32, ...
  float* total;    // [value_dim] likewise

  static int32_t Floats(const AttentionKernelArgs& args) {
    return args.kv.head_dim + kAttentionTile + 2 * ValueDim(args);
  }
  __device__ WarpRoom(float* room, int32_t head_dim, int32_t value_dim)
      : q(room), weights(q + head_dim), item(weights + kAttentionTile), total(item + value_dim) {}
};

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class T>
__device__ float Dot(const float* q, const T* key, int32_t dim) {
  float sum = 0;
  for (int32_t d = 0; d < dim; d += 8) {
    const auto part = *reinterpret_cast<const Eight<T>*>(key + d);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(q[d + i], Widen(part.values[i]), sum);
  }
  return sum;
}

// One row and head.
template <class T>
class ScalarRow {
 public:
  __device__ ScalarRow(const AttentionKernelArgs& args, int32_t row, int32_t head, int32_t sequence, float* room)
      : args_(args),
        row_(row),
        head_(head),
        lane_(threadIdx.x % 32),
        value_dim_(ValueDim(args)),
        room_(room, args.kv.head_dim, value_dim_),
        offsets_(args, sequence, head / (args.num_heads / args.kv.num_kv_heads)),
        keys_(VisibleKeys(args.mask, args.step.positions[row])),
        rule_(args.scale, args.softcap) {}

  __device__ void Run() {
    LoadQuery();
    SoftmaxState total;
    for (int32_t d = lane_; d < value_dim_; d += 32) room_.total[d] = 0;
    for (int32_t item = keys_.begin / kAttentionItem; item * kAttentionItem < keys_.end; ++item) {
      const MergeFactors factors = Merge(total, RunItem(item));
      for (int32_t d = lane_; d < value_dim_; d += 32) room_.total[d] = Merge(room_.total[d], room_.item[d], factors);
    }
    Store(FinalFactor(total, args_.sinks, head_));
  }

 private:
  __device__ void LoadQuery() {
    const int32_t dim = args_.kv.head_dim;
    const int64_t first = (int64_t{row_} * args_.row_heads + head_) * dim;
    for (int32_t d = lane_; d < dim; d += 32) {
      room_.q[d] = args_.element == Element::kF32
                       ? static_cast<const float*>(args_.q)[first + d]
                       : __bfloat162float(static_cast<const __nv_bfloat16*>(args_.q)[first + d]);
    }
    __syncwarp();
  }

  __device__ SoftmaxState RunItem(int32_t item) {
    SoftmaxState state;
    for (int32_t d = lane_; d < value_dim_; d += 32) room_.item[d] = 0;
    const int32_t end = min((item + 1) * kAttentionItem, keys_.end);
    for (int32_t tile = item * kAttentionItem; tile < end; tile += kAttentionTile) {
      if (tile + kAttentionTile > keys_.begin) RunTile(tile, state);
    }
    return state;
  }

  // A lane has the scores of keys tile + lane and tile + lane + 32.
  __device__ void RunTile(int32_t tile, SoftmaxState& state) {
    const T* cache = static_cast<const T*>(args_.kv.data);
    float scores[kKeysPerLane][1];
    for (int i = 0; i < kKeysPerLane; ++i) {
      const int32_t key = tile + lane_ + 32 * i;
      scores[i][0] = Sees(key) ? Dot(room_.q, cache + offsets_.Key(key), args_.kv.head_dim) : 0;
    }
    rule_.Apply(scores);
    float max = state.max;
    for (int i = 0; i < kKeysPerLane; ++i) {
      if (!Sees(tile + lane_ + 32 * i)) scores[i][0] = -INFINITY;
      max = fmaxf(max, scores[i][0]);
    }
    max = WarpReduce(max, Larger());  // finite: the row sees a key of each tile that it takes
    const float keep = ptx::exp2(state.max - max);
    float sum = 0;
    for (int i = 0; i < kKeysPerLane; ++i) {
      const float weight = ptx::exp2(scores[i][0] - max);
      room_.weights[lane_ + 32 * i] = weight;
      sum += weight;
    }
    state = {max, fmaf(state.sum, keep, WarpReduce(sum, Plus()))};
    __syncwarp();
    AddValues(tile, keep);
    __syncwarp();  // the next tile writes the weights
  }

  __device__ bool Sees(int32_t key) const { return key >= keys_.begin && key < keys_.end; }

  __device__ void AddValues(int32_t tile, float keep) {
    const T* cache = static_cast<const T*>(args_.kv.data);
    const int32_t begin = max(tile, keys_.begin), end = min(tile + kAttentionTile, keys_.end);
    for (int32_t d = lane_; d < value_dim_; d += 32) room_.item[d] *= keep;
    for (int32_t key = begin; key < end; ++key) {
      const T* value = cache + offsets_.Value(key);
      const float weight = room_.weights[key - tile];
      for (int32_t d = lane_; d < value_dim_; d += 32) room_.item[d] = fmaf(weight, Widen(value[d]), room_.item[d]);
    }
  }

  __device__ void Store(float factor) {
    const int64_t first = (int64_t{row_} * args_.row_heads + head_) * value_dim_;
    for (int32_t d = lane_; d < value_dim_; d += 32) {
      StoreElement(args_.out, args_.element, first + d, room_.total[d] * factor);
    }
  }

  const AttentionKernelArgs& args_;
  const int32_t row_, head_, lane_, value_dim_;
  const WarpRoom room_;
  const CacheOffsets offsets_;
  const KeyRange keys_;
  const ScoreRule rule_;
};

template <class T>
__global__ void __launch_bounds__(kWarps * 32, 4)
    ScalarAttentionKernel(const __grid_constant__ AttentionKernelArgs args, int32_t warp_floats) {
  SLUICE_SHARED(float, shared);
  const int32_t warp = threadIdx.x / 32;
  float* room = &shared + warp * warp_floats;
  const int64_t work = int64_t{args.step.num_tokens} * args.num_heads;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + warp; i < work; i += int64_t{gridDim.x} * kWarps) {
    const int32_t row = static_cast<int32_t>(i / args.num_heads), head = static_cast<int32_t>(i % args.num_heads);
    const int32_t sequence = args.step.row_sequences[row];
    if (!TakesRow(args.step, row, sequence)) continue;
    ScalarRow<T>(args, row, head, sequence, room).Run();
    __syncwarp();
  }
}

template <class T>
void Launch(const AttentionKernelArgs& args, Stream stream) {
  const int32_t warp_floats = WarpRoom::Floats(args);
  const int64_t blocks = (int64_t{args.step.num_tokens} * args.num_heads + kWarps - 1) / kWarps;
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(blocks, 16 * args.num_sms));
  SLUICE_LAUNCH((ScalarAttentionKernel<T>), dim3(grid), dim3(kWarps * 32), kWarps * warp_floats * sizeof(float), stream,
                args, warp_floats);
}

}  // namespace

void LaunchScalarAttention(const AttentionKernelArgs& args, Stream stream) {
  switch (args.kv.element) {
    case KvElement::kF32:
      return Launch<float>(args, stream);
    case KvElement::kF16:
      return Launch<__half>(args, stream);
    case KvElement::kBF16:
      return Launch<__nv_bfloat16>(args, stream);
    case KvElement::kF8E4M3:
      return Launch<__nv_fp8_e4m3>(args, stream);
  }
}

}  // namespace sluice::cuda
