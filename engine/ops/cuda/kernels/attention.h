// Softmax attention of each row over its own sequence's pages, itself included.
//
// Arithmetic, the same in every kernel, so that a row has the same bits in decode, in prefill and in chunks of any
// size: the keys of a row are cut at absolute multiples of kAttentionItem tokens into items; within an item keys are
// taken in tiles of kAttentionTile, ascending, by the online softmax (Milakov, Gimelshein 2018); each item gives (m, l,
// O), and items are merged ascending. Scores, m, l and O are f32; the weights are rounded to bf16 (f16 with an f16
// cache) before they meet V in the mma form, and stay f32 in the scalar form. Which form runs depends on types and head
// sizes only.
#pragma once

#include <cstdint>

#include "engine/base/layer_types.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

inline constexpr int32_t kAttentionItem = 256;  // tokens
inline constexpr int32_t kAttentionTile = 64;

// The largest step that a plan and its partial results must hold.
struct AttentionLimits {
  int32_t max_tokens = 0;  // rows of a step, padding included
  int32_t max_seqs = 0;
  // Tokens of all sequences of a step together, whose contexts are cut into items that run side by side. Steps with
  // more (sequences may share blocks) are right, too: their last rows each take their items one after the other.
  int64_t max_total_context = 0;
};

// Work of one step for all layers with the same mask and number of heads per KV head, found on the device from the
// step's arrays, so that a captured graph follows the lengths. Filled by LaunchPlanAttention; its memory is the
// caller's.
struct AttentionPlan {
  int32_t* counts = nullptr;  // [8]
  int32_t* items = nullptr;   // [AttentionPlanInts(limits)]
  AttentionLimits limits;
};

int64_t AttentionPlanInts(const AttentionLimits& limits);

// num_rows_per_token: query heads that share a KV head (they are packed into the rows of an mma); for absorbed MLA the
// number of heads.
void LaunchPlanAttention(const StepArrays& step, AttentionMask mask, int32_t num_rows_per_token,
                         const AttentionPlan& plan, Stream stream);

// Takes rows step.row_starts[s] up to step.row_ends[s] of the sequences s from first_seq up to end_seq: all of a step's
// unless the forms of MLA share it.
struct AttentionKernelArgs {
  StepArrays step;
  KvGroupArrays group;
  AttentionPlan plan;                // made for the same rows, `mask` and num_heads / kv.num_kv_heads
  const void* q = nullptr;           // [num_tokens, row_heads * head_dim]
  Element element = Element::kBF16;  // of q and out
  int32_t num_heads = 0;
  int32_t row_heads = 0;         // heads in a row of q and of out; the first num_heads are taken
  PagedKv kv;                    // head_dim, value_head_dim, num_kv_heads
  int32_t latent_value_dim = 0;  // > 0: MLA, absorbed. The value is the first so many columns of the key
  float scale = 1;
  float softcap = 0;  // 0: none
  AttentionMask mask;
  const float* sinks = nullptr;  // [num_heads] or null: logits that join the softmax without a value
  void* out = nullptr;           // [num_tokens, row_heads * value_head_dim (or latent_value_dim)]
  float* partials = nullptr;     // AttentionPartialFloats
  int32_t num_sms = 132;         // of the device: the size of persistent grids
};

// f32 that the partial results of a step may need; value_dim: value_head_dim or latent_value_dim.
int64_t AttentionPartialFloats(const AttentionLimits& limits, int32_t num_heads, int32_t value_dim);

// Rows of padding get no result. A step with as many rows as sequences is taken for one of decode rows (any other is
// right all the same), so that it needs no launch for longer runs of rows.
void LaunchAttention(const AttentionKernelArgs& args, Stream stream);

}  // namespace sluice::cuda
