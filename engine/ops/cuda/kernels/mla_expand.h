// The expanded form of MLA: keys and values of all heads, made from the latents in the cache and laid out as a paged
// cache of their own, over which attention is that of any other model.
//
//   gather   latents of whole contexts, out of the pages      [tokens, kv_lora_rank + rope]
//   gemm.h   times W_UK and W_UV, a product a head            [tokens, heads, nope + v]
//   lay out  into blocks: key = k_nope | k_pe, value = v      PagedKv
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

inline constexpr int32_t kExpandedBlock = 64;  // tokens: a tile of attention

// Of sequences first_seq up to end_seq, those with first_blocks[s] >= 0 have blocks of their own from that on, as many
// as their contexts need. What follows a context in its last block, and what was given back of the cache, is zeros.
struct GatherLatentsArgs {
  KvGroupArrays group;
  PagedKv kv;  // one head of kv_lora_rank + rope
  int32_t first_seq = 0, end_seq = 0;
  int32_t longest_blocks = 0;             // of such a sequence
  const int32_t* context_lens = nullptr;  // [num_seqs]
  const int32_t* first_blocks = nullptr;  // [num_seqs] or -1
  void* latents = nullptr;                // out: [blocks * kExpandedBlock, kv.head_dim]
  Element element = Element::kBF16;
  int32_t* block_tables = nullptr;  // out: [num_seqs, table_stride] for attention; the rest is left as it is
  int32_t table_stride = 0;
};
void LaunchGatherLatents(const GatherLatentsArgs& args, Stream stream);

// Moves rows of products and the rope keys that all heads share to their places.
struct LayOutExpandedArgs {
  int32_t num_blocks = 0;
  const void* products = nullptr;   // [num_blocks * kExpandedBlock, kv.num_kv_heads, nope + v], of Element
  const void* rope_keys = nullptr;  // [num_blocks * kExpandedBlock, rope_stride], the first kv.head_dim - nope of a row
  int64_t rope_stride = 0;
  int32_t qk_nope_head_dim = 0;
  PagedKv kv;  // out; blocks of kExpandedBlock in kF32 or kBF16 as Element
};
void LaunchLayOutExpanded(const LayOutExpandedArgs& args, Stream stream);

}  // namespace sluice::cuda
