// The choices a transformer layer can make, as plain values shared by the model description (engine/model/spec.h) and
// the operations that carry them out (engine/ops/ops.h), which say where each stands in a layer.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/host_device.h"

namespace sluice {

enum class NormKind : uint8_t { kRms, kLayer };

// y = x / sqrt(mean(x^2) + eps) * (weight + weight_offset)                          kRms
// y = (x - mean) / sqrt(var + eps) * (weight + weight_offset) + bias                kLayer; biased variance
struct NormParams {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  float weight_offset = 0;  // 1 where the file stores w - 1 (Gemma in Hugging Face folders)
};

// Which two of the first `num_rotary` dimensions of a head make pair i.
enum class RopeLayout : uint8_t {
  kHalfSplit,    // (i, i + num_rotary/2): Hugging Face checkpoints of the Llama family
  kInterleaved,  // (2i, 2i + 1): GGUF `llama`, Llama 4, DeepSeek
};

enum class QkNormKind : uint8_t { kNone, kPerHead, kFullWidth, kL2PerHead };

struct QkNormSpec {
  QkNormKind kind = QkNormKind::kNone;
  NormParams norm = {};
  bool after_rope = false;
};

// Grouped-query attention; MHA has num_kv_heads == num_heads, MQA has 1. Query head h reads KV head h / (num_heads /
// num_kv_heads).
struct Gqa {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;  // of queries and keys
  int32_t value_head_dim = 0;
  QkNormSpec qk_norm = {};
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): the cache holds kv_lora_rank + qk_rope_head_dim values
// per token, no head axis.
struct Mla {
  int32_t num_heads = 0;
  std::optional<int32_t> q_lora_rank = {};  // none: queries are projected from x directly
  int32_t kv_lora_rank = 0;
  int32_t qk_nope_head_dim = 0;
  int32_t qk_rope_head_dim = 0;
  int32_t v_head_dim = 0;
  float latent_norm_eps = 1e-6f;
};

enum class MaskKind : uint8_t {
  kFull,    // key <= query
  kWindow,  // query - key < size: `size` keys including the query itself
  kChunk,   // floor(query/size) == floor(key/size) and key <= query
};

struct AttentionMask {
  MaskKind kind = MaskKind::kFull;
  int32_t size = 0;  // tokens; unused for kFull
  bool operator==(const AttentionMask&) const = default;
};

// The first key that a query at `position` sees. It never moves back: no later query sees a key before it.
SLUICE_HOST_DEVICE inline int32_t FirstVisibleKey(const AttentionMask& mask, int32_t position) {
  switch (mask.kind) {
    case MaskKind::kFull:
      return 0;
    case MaskKind::kWindow:
      return position < mask.size ? 0 : position - mask.size + 1;
    case MaskKind::kChunk:
      return position / mask.size * mask.size;
  }
  return 0;
}

enum class ActivationKind : uint8_t { kSilu, kGeluTanh, kGeluErf, kSwigluOai };

// How the router's logits r become scores s, from which the experts are chosen.
enum class MoeScore : uint8_t {
  kSoftmaxAll,   // s = softmax(r)
  kSoftmaxTopK,  // s = r; the weights are the softmax over the chosen logits only (gpt-oss)
  kSigmoid,      // s = sigmoid(r)
};

// The score of a group of experts: its best choice score, or the sum of its two best.
enum class MoeGroupScore : uint8_t { kMax, kTop2Sum };

// Experts in equal consecutive groups; only those in the `num_kept` best groups can be chosen.
struct MoeGroups {
  int32_t num_groups = 1;
  int32_t num_kept = 1;
  MoeGroupScore score = MoeGroupScore::kMax;
};

// Choice score c = s, plus the selection bias where there is one; the experts are the num_experts_per_token largest c
// (lower index first on ties) within the kept groups. Their weights are s, not c; renormalised to
// s / (sum of s + renormalize_eps) if asked for, then times routed_scale.
struct MoeRouting {
  int32_t num_experts = 0;
  int32_t num_experts_per_token = 0;
  MoeScore score = MoeScore::kSoftmaxAll;
  std::optional<MoeGroups> groups = {};
  bool renormalize = false;
  float renormalize_eps = 0;
  float routed_scale = 1;
};

}  // namespace sluice
