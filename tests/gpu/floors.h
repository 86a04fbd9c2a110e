// The least that a step of a model moves and computes, bf16 weights and cache, and so the least time it takes on an
// H200.
#pragma once

#include <cstdint>

#include "engine/model/spec.h"

namespace sluice::cuda_testing {

struct StepCost {
  double bytes = 0;  // weights, the embedding table aside, and keys and values, once each
  double flops = 0;
  double floor_seconds() const;
};

// One new token for each of `batch` sequences, which have `context` tokens then. Of a mixture of experts the weights of
// as many experts count as that many rows are expected to visit.
StepCost DecodeCost(const ModelSpec& spec, int32_t batch, int32_t context);

// A prompt of `tokens` tokens, of which the last one asks for logits. Latent attention counts in its expanded form.
StepCost PrefillCost(const ModelSpec& spec, int32_t tokens);

}  // namespace sluice::cuda_testing
