#include "tests/gpu/floors.h"

#include <cmath>

#include "engine/model/tensor_roles.h"
#include "tests/gpu/measure.h"

namespace sluice::cuda_testing {
namespace {

constexpr double kWidth = 2;  // bytes of a weight, and of a value in the cache

bool IsOfExperts(TensorRole role) {
  return role == TensorRole::kExpertGate || role == TensorRole::kExpertUp || role == TensorRole::kExpertDown;
}

// Weights read by `rows` rows of which `logits` ask for logits, and their products.
StepCost Weights(const ModelSpec& spec, double rows, double logits) {
  StepCost cost;
  for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
    const auto count = static_cast<double>(tensor.num_elements());
    if (tensor.shape.size() < 2) continue;
    if (tensor.role == TensorRole::kPositionEmbedding) continue;
    if (tensor.role == TensorRole::kOutputHead || tensor.role == TensorRole::kTokenEmbedding) {
      // Of the table a row a token is read, unless it is the head, too.
      if (tensor.role == TensorRole::kTokenEmbedding && !spec.tied_embeddings) continue;
      cost.bytes += count * kWidth;
      cost.flops += 2 * count * logits;
    } else if (IsOfExperts(tensor.role)) {
      const MoeRouting& routing = std::get<MoeFfn>(spec.layers[static_cast<size_t>(tensor.layer)].ffn).routing;
      const double share = double{1.0} * routing.num_experts_per_token / routing.num_experts;
      cost.bytes += count * kWidth * (1 - std::pow(1 - share, rows));
      cost.flops += 2 * count * share * rows;
    } else {
      cost.bytes += count * kWidth;
      cost.flops += 2 * count * rows;
    }
  }
  return cost;
}

double KeyBytes(const ModelSpec& spec) {
  double bytes = 0;
  for (const LayerSpec& layer : spec.layers) bytes += kWidth * static_cast<double>(KvValuesPerToken(layer));
  return bytes;
}

// Of one row and one key that it sees, in all layers.
double KeyFlops(const ModelSpec& spec, bool expanded) {
  double flops = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* gqa = std::get_if<Gqa>(&layer.attention.kind)) {
      flops += 2.0 * gqa->num_heads * (gqa->head_dim + gqa->value_head_dim);
    } else {
      const Mla& mla = std::get<Mla>(layer.attention.kind);
      flops += 2.0 * mla.num_heads *
               (expanded ? mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
                         : 2 * mla.kv_lora_rank + mla.qk_rope_head_dim);
    }
  }
  return flops;
}

}  // namespace

double StepCost::floor_seconds() const { return FloorSeconds(bytes, flops); }

StepCost DecodeCost(const ModelSpec& spec, int32_t batch, int32_t context) {
  StepCost cost = Weights(spec, batch, batch);
  cost.bytes += double{1.0} * batch * context * KeyBytes(spec);
  cost.flops += double{1.0} * batch * context * KeyFlops(spec, false);
  return cost;
}

StepCost PrefillCost(const ModelSpec& spec, int32_t tokens) {
  StepCost cost = Weights(spec, tokens, 1);
  cost.bytes += tokens * KeyBytes(spec);
  cost.flops += 0.5 * tokens * tokens * KeyFlops(spec, true);
  return cost;
}

}  // namespace sluice::cuda_testing
