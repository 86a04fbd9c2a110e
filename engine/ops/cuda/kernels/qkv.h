// Between the projections of an attention layer and the attention itself: QK-norm, RoPE, temperature, the cache write.
#pragma once

#include "engine/base/layer_types.h"
#include "engine/ops/cuda/kernels/norm.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

enum class LengthRule : uint8_t { kNone, kLongRope, kDynamicNtk };

// A RopeTable (engine/base/rope_table.h) on the device. Angles are position * inv_freq, reduced and taken sine and
// cosine of with the accuracy of f32 at any position up to 2^24.
struct RopeView {
  const float* inv_freq = nullptr;       // [num_rotary / 2]
  const float* long_inv_freq = nullptr;  // [num_rotary / 2], kLongRope
  float attention_factor = 1;
  LengthRule rule = LengthRule::kNone;
  int32_t original_max_position = 0;  // kLongRope: original_max_position; kDynamicNtk: max_position
  float base = 0, factor = 1;         // kDynamicNtk
  RopeLayout layout = RopeLayout::kHalfSplit;
  int32_t num_rotary = 0;  // 0: no rotation
};

// Rows of q|k|v -> q, and K and V into the cache at slot_mapping. In order: norm of q and k (before the rotation unless
// after_rope), rotation, temperature on q. All in f32, rounded once at the end. REQUIRES: kv.head_dim <= 512.
struct QkvPostArgs {
  StepArrays step = {};
  KvGroupArrays group = {};
  const float* qkv = nullptr;  // [num_tokens, (num_heads + num_kv_heads) * head_dim + num_kv_heads * value_head_dim]
  int32_t num_heads = 0;
  QkNormKind qk_norm = QkNormKind::kNone;
  bool norm_after_rope = false;
  NormWeightsView q_norm = {}, k_norm = {};  // weights [head_dim] (kPerHead) or of the whole width (kFullWidth)
  RopeView rope = {};
  // temperature of a row at position p: see QueryTemperature in engine/model/spec.h
  bool has_temperature = false;
  float temperature_floor = 0, temperature_coef = 0;
  PagedKv kv = {};
  void* q = nullptr;  // [num_tokens, num_heads * head_dim]
  Element q_element = Element::kBF16;
};
void LaunchQkvPost(const QkvPostArgs& args, Stream stream);

// MLA: the same for `down` = [q part | c | k_pe] and the queries. Turns the rope part of each head of q in f32, writes
// norm(c) | rotated k_pe to the cache. REQUIRES: rope.num_rotary == qk_rope_head_dim.
struct MlaQkvPostArgs {
  StepArrays step = {};
  KvGroupArrays group = {};
  const float* latent = nullptr;  // c of row 0: [kv_lora_rank | qk_rope_head_dim] in a row of `down`
  int64_t latent_stride = 0;      // elements between rows
  NormWeightsView latent_norm = {};
  const float* q_in = nullptr;  // [num_tokens, num_heads * (nope + rope)] with q_in_stride between rows
  int64_t q_in_stride = 0;
  int32_t num_heads = 0, kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0;
  RopeView rope = {};
  PagedKv kv = {};    // one head of kv_lora_rank + qk_rope_head_dim
  void* q = nullptr;  // [num_tokens, num_heads * (nope + rope)]
  Element q_element = Element::kBF16;
};
void LaunchMlaQkvPost(const MlaQkvPostArgs& args, Stream stream);

// Copies the rotated parts of the queries beside the mapped ones: q_latent[r, h, kv_lora_rank ..] = q[r, h, nope ..].
// REQUIRES: the three dimensions are even.
struct MlaGatherRopeArgs {
  int32_t num_tokens = 0;
  int32_t num_heads = 0, kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0;
  const void* q = nullptr;   // [num_tokens, num_heads * (nope + rope)]
  void* q_latent = nullptr;  // [num_tokens, num_heads * (kv_lora_rank + rope)]
  Element element = Element::kBF16;
};
void LaunchMlaGatherRope(const MlaGatherRopeArgs& args, Stream stream);

}  // namespace sluice::cuda
