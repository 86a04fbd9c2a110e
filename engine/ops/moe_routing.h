// Which experts a row visits and with what weights: MoeRouting (engine/base/layer_types.h) carried out for one row. The
// implementations that run on the CPU share this code; others are compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/layer_types.h"

namespace sluice {

struct ExpertChoice {
  int32_t expert;
  float weight;
};

// Values of working memory that ChooseExperts needs.
inline size_t RoutingScratch(const MoeRouting& routing) { return size_t{3} * static_cast<size_t>(routing.num_experts); }

// Writes the choices of a row with router logits `logits` [num_experts], ascending by expert, to `choices`
// [num_experts_per_token]. `selection_bias` [num_experts] is added to the scores for the choice only; may be null. Pure
// f64 arithmetic in a fixed order, rounded once. NaN counts as the largest of all scores, so that it is chosen, ends up
// in the row's output and is seen; infinite logits give NaN weights where softmax is not defined.
// REQUIRES: 1 <= num_experts_per_token <= num_experts; num_groups divides num_experts, leaving at least two in a group
// for kTop2Sum; the kept groups hold at least num_experts_per_token experts; `scratch` holds RoutingScratch values.
void ChooseExperts(const MoeRouting& routing, std::span<const float> logits, const float* selection_bias,
                   std::span<double> scratch, std::span<ExpertChoice> choices);

}  // namespace sluice
