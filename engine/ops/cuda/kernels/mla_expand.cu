#include "engine/ops/cuda/kernels/mla_expand.h"

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ Eight<float> FloatsOf(const Eight<float>& x) { return x; }
template <class T>
__device__ __forceinline__ Eight<float> FloatsOf(const Eight<T>& x) {
  Eight<float> result;
#pragma unroll
  for (int i = 0; i < 8; ++i) result.values[i] = Widen(x.values[i]);
  return result;
}

__device__ __forceinline__ void Store(const Eight<float>& x, float* to) {
  *reinterpret_cast<Eight<float>*>(to) = x;
}
__device__ __forceinline__ void Store(const Eight<float>& x, __nv_bfloat16* to) {
  Eight<__nv_bfloat16> rounded;
#pragma unroll
  for (int i = 0; i < 8; ++i) rounded.values[i] = __float2bfloat16(x.values[i]);
  *reinterpret_cast<Eight<__nv_bfloat16>*>(to) = rounded;
}

// blockIdx.x: expanded block of the sequence blockIdx.y of those asked for; 8 values of a token a thread at a time.
template <class T, class To>
__global__ void __launch_bounds__(kThreads) GatherLatentsKernel(const __grid_constant__ GatherLatentsArgs args) {
  const int32_t sequence = args.first_seq + static_cast<int32_t>(blockIdx.y);
  const int32_t first_block = args.first_blocks[sequence], end = args.context_lens[sequence];
  const int32_t index = static_cast<int32_t>(blockIdx.x), first_key = index * kExpandedBlock;
  if (first_block < 0 || first_key >= end) return;
  if (threadIdx.x == 0) args.block_tables[int64_t{sequence} * args.table_stride + index] = first_block + index;
  const int32_t* table = args.group.block_tables + int64_t{sequence} * args.group.stride;
  const int32_t shift = 31 - __clz(args.kv.block_size), pieces = args.kv.head_dim / 8;
  To* latents = static_cast<To*>(args.latents) + int64_t{first_block + index} * kExpandedBlock * args.kv.head_dim;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kExpandedBlock * pieces; i += kThreads) {
    const int32_t key = first_key + i / pieces, column = i % pieces * 8;
    const int32_t block = key < end ? table[key >> shift] : -1;
    Eight<float> latent = {};
    if (block >= 0) {
      const int64_t at = block * args.kv.block_elements() +
                         int64_t{key & (args.kv.block_size - 1)} * args.kv.head_dim + column;
      latent = FloatsOf(*reinterpret_cast<const Eight<T>*>(static_cast<const T*>(args.kv.data) + at));
    }
    Store(latent, latents + int64_t{i / pieces} * args.kv.head_dim + column);
  }
}

template <class T>
void LaunchGather(const GatherLatentsArgs& args, Stream stream) {
  const dim3 grid(static_cast<unsigned>(args.longest_blocks), static_cast<unsigned>(args.end_seq - args.first_seq));
  if (args.element == Element::kF32) {
    SLUICE_LAUNCH((GatherLatentsKernel<T, float>), grid, dim3(kThreads), 0, stream, args);
  } else {
    SLUICE_LAUNCH((GatherLatentsKernel<T, __nv_bfloat16>), grid, dim3(kThreads), 0, stream, args);
  }
}

// Sizes of LayOutExpandedArgs in words of 16 bytes.
struct WordSizes {
  int32_t nope, rope, value;
  int64_t rope_stride;
};

// A word a thread, in the order in which they are written.
__global__ void __launch_bounds__(kThreads)
    LayOutExpandedKernel(const __grid_constant__ LayOutExpandedArgs args, const WordSizes words) {
  const int32_t heads = args.kv.num_kv_heads, key_words = words.nope + words.rope;
  const int32_t block_keys = heads * kExpandedBlock * key_words;
  const int32_t block_words = block_keys + heads * kExpandedBlock * words.value;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t block = i / block_words;
  if (block >= args.num_blocks) return;
  const int32_t within = static_cast<int32_t>(i - block * block_words);
  const bool is_key = within < block_keys;
  const int32_t at = is_key ? within : within - block_keys, width = is_key ? key_words : words.value;
  const int32_t row = at / width, column = at % width, head = row / kExpandedBlock;
  const int64_t token = block * kExpandedBlock + row % kExpandedBlock;
  const bool is_rope = is_key && column >= words.nope;
  const uint4* from = is_rope ? static_cast<const uint4*>(args.rope_keys) + token * words.rope_stride - words.nope
                              : static_cast<const uint4*>(args.products) +
                                    (token * heads + head) * (words.nope + words.value) + (is_key ? 0 : words.nope);
  static_cast<uint4*>(args.kv.data)[i] = from[column];
}

}  // namespace

void LaunchGatherLatents(const GatherLatentsArgs& args, Stream stream) {
  if (args.end_seq == args.first_seq || args.longest_blocks == 0) return;
  switch (args.kv.element) {
    case KvElement::kF32:
      return LaunchGather<float>(args, stream);
    case KvElement::kF16:
      return LaunchGather<__half>(args, stream);
    case KvElement::kBF16:
      return LaunchGather<__nv_bfloat16>(args, stream);
    case KvElement::kF8E4M3:
      return LaunchGather<__nv_fp8_e4m3>(args, stream);
  }
}

void LaunchLayOutExpanded(const LayOutExpandedArgs& args, Stream stream) {
  if (args.num_blocks == 0) return;
  const int64_t per_word = 16 / KvElementBytes(args.kv.element);
  const auto words = [&](int64_t elements) { return static_cast<int32_t>(elements / per_word); };
  const WordSizes sizes = {words(args.qk_nope_head_dim), words(args.kv.head_dim - args.qk_nope_head_dim),
                           words(args.kv.value_head_dim), words(args.rope_stride)};
  const int64_t num_words = args.num_blocks * args.kv.block_elements() / per_word;
  SLUICE_LAUNCH(LayOutExpandedKernel, dim3(static_cast<unsigned>((num_words + kThreads - 1) / kThreads)),
                dim3(kThreads), 0, stream, args, sizes);
}

}  // namespace sluice::cuda
