#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/kv_store.cuh"
#include "engine/ops/cuda/kernels/qkv.h"
#include "engine/ops/cuda/kernels/reduce.cuh"
#include "engine/ops/cuda/kernels/rope.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;

// What all warps of a token share.
struct Token {
  int32_t index, position, rope_length, lane;
};

__device__ Rotation RotationAt(const MlaQkvPostArgs& args, const Token& token, int32_t pair) {
  if (2 * pair >= args.rope.num_rotary) return {1, 0};
  return RotationOf(args.rope, pair, token.position, token.rope_length);
}

// norm(c) | rotated k_pe to the cache.
__device__ void StoreLatent(const MlaQkvPostArgs& args, const Token& token) {
  const int32_t slot = args.group.slot_mapping[token.index], d = args.kv_lora_rank;
  const float* c = args.latent + token.index * args.latent_stride;
  const int64_t key = slot >= 0 ? KeyIndex(args.kv, slot, 0) : 0;
  const NormWeightsView& norm = args.latent_norm;
  float mean = 0;
  if (norm.params.kind == NormKind::kLayer) {
    float sum = 0;
    for (int32_t i = token.lane; i < d; i += kWarpLanes) sum += c[i];
    mean = WarpReduce(sum, Plus()) / float(d);
  }
  float squares = 0;
  for (int32_t i = token.lane; i < d; i += kWarpLanes) squares = fmaf(c[i] - mean, c[i] - mean, squares);
  const float scale = 1 / sqrtf(WarpReduce(squares, Plus()) / float(d) + norm.params.eps);
  if (slot < 0) return;
  for (int32_t i = token.lane; i < d; i += kWarpLanes) {
    float y = (c[i] - mean) * scale;
    if (norm.weight != nullptr) y *= norm.weight[i] + norm.params.weight_offset;
    if (norm.bias != nullptr) y += norm.bias[i];
    StoreKv(args.kv, key + i, y);
  }
  for (int32_t pair = token.lane; 2 * pair < args.qk_rope_head_dim; pair += kWarpLanes) {
    const PairColumns columns = ColumnsOf(args.rope, pair);
    const float2 v = Rotate({c[d + columns.first], c[d + columns.second]}, RotationAt(args, token, pair));
    StoreKv(args.kv, key + d + columns.first, v.x);
    StoreKv(args.kv, key + d + columns.second, v.y);
  }
}

__device__ void StoreQuery(const MlaQkvPostArgs& args, const Token& token, int32_t head) {
  const int32_t nope = args.qk_nope_head_dim, dim = nope + args.qk_rope_head_dim;
  const float* x = args.q_in + token.index * args.q_in_stride + int64_t{head} * dim;
  const int64_t first = (int64_t{token.index} * args.num_heads + head) * dim;
  for (int32_t i = token.lane; i < nope; i += kWarpLanes) StoreElement(args.q, args.q_element, first + i, x[i]);
  for (int32_t pair = token.lane; 2 * pair < args.qk_rope_head_dim; pair += kWarpLanes) {
    const PairColumns columns = ColumnsOf(args.rope, pair);
    const float2 v = Rotate({x[nope + columns.first], x[nope + columns.second]}, RotationAt(args, token, pair));
    StoreElement(args.q, args.q_element, first + nope + columns.first, v.x);
    StoreElement(args.q, args.q_element, first + nope + columns.second, v.y);
  }
}

// A warp for the latent and for each head of the queries. blockIdx.x: token; blockIdx.y: warps.
__global__ void __launch_bounds__(kWarpsPerBlock* kWarpLanes)
    PostMlaKernel(const __grid_constant__ MlaQkvPostArgs args) {
  const int32_t index = blockIdx.x, sequence = args.step.row_sequences[index];
  if (sequence < 0) return;
  const Token token = {index, args.step.positions[index],
                       args.rope.rule == LengthRule::kNone ? 0 : args.step.rope_classes[sequence],
                       int32_t(threadIdx.x % kWarpLanes)};
  const int32_t unit = blockIdx.y * kWarpsPerBlock + threadIdx.x / kWarpLanes;
  if (unit == 0) {
    StoreLatent(args, token);
  } else if (unit <= args.num_heads) {
    StoreQuery(args, token, unit - 1);
  }
}

constexpr int kGatherThreads = 128;

// A word a thread, of num_words = rope words of each pair of a token and a head; sizes in words.
template <class Word>
__global__ void __launch_bounds__(kGatherThreads)
    GatherRopeKernel(const Word* q, Word* q_latent, int32_t nope, int32_t latent, int32_t rope, int64_t num_words) {
  const int64_t i = int64_t{blockIdx.x} * kGatherThreads + threadIdx.x;
  if (i >= num_words) return;
  const int64_t pair = i / rope, word = i - pair * rope;
  q_latent[pair * (latent + rope) + latent + word] = q[pair * (nope + rope) + nope + word];
}

template <class Word>
void LaunchGather(const MlaGatherRopeArgs& args, Stream stream) {
  const auto words = [&](int32_t elements) {
    return int32_t(elements * ElementBytes(args.element) / int64_t{sizeof(Word)});
  };
  const int64_t num_words = int64_t{args.num_tokens} * args.num_heads * words(args.qk_rope_head_dim);
  SLUICE_LAUNCH(GatherRopeKernel<Word>, dim3(unsigned((num_words + kGatherThreads - 1) / kGatherThreads)),
                dim3(kGatherThreads), 0, stream, static_cast<const Word*>(args.q), static_cast<Word*>(args.q_latent),
                words(args.qk_nope_head_dim), words(args.kv_lora_rank), words(args.qk_rope_head_dim), num_words);
}

}  // namespace

void LaunchMlaQkvPost(const MlaQkvPostArgs& args, Stream stream) {
  if (args.step.num_tokens == 0) return;
  const dim3 grid(unsigned(args.step.num_tokens), unsigned((args.num_heads + kWarpsPerBlock) / kWarpsPerBlock));
  SLUICE_LAUNCH(PostMlaKernel, grid, dim3(kWarpsPerBlock * kWarpLanes), 0, stream, args);
}

void LaunchMlaGatherRope(const MlaGatherRopeArgs& args, Stream stream) {
  if (args.num_tokens == 0) return;
  const int32_t all = args.qk_nope_head_dim | args.kv_lora_rank | args.qk_rope_head_dim;
  if (all * ElementBytes(args.element) % 16 == 0 && IsAligned(args.q) && IsAligned(args.q_latent)) {
    LaunchGather<uint4>(args, stream);
  } else {
    LaunchGather<uint32_t>(args, stream);
  }
}

}  // namespace sluice::cuda
