// The sampling rule of engine/ops/sampling.h in plain code: sorts, f64 sums.
#pragma once

#include <span>

#include "engine/ops/sampling.h"

namespace sluice {

SampleResult ReferenceSample(std::span<const float> logits, const SampleRow& row);

// log_softmax(logits) of `token`, its rank, and the `num_top` largest.
TokenLogprobs ReferenceLogprobs(std::span<const float> logits, int32_t token, int32_t num_top);

}  // namespace sluice
