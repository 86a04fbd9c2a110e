// From a row of logits to a token, as plain data. The rule is the same on every device (the order is vLLM's):
//   1 raw log-probabilities (for reporting) = log_softmax(logits)
//   2 tokens outside allowed_tokens, and masked_tokens, = -inf: nothing below brings one back
//   3 logit += bias; 4 repetition over prompt + output: l > 0 ? l / r : l * r
//   5 l -= frequency * count in output; 6 l -= presence * [count > 0]
//   7 temperature 0, or one that the largest overflows when divided by: the largest, lowest id on ties. Otherwise
//     l /= temperature, then keep
//     min_p: p >= min_p * p_max; top_k: the k largest, ties at the k-th stay; top_p: of the softmax of the survivors,
//     the smallest set of largest values whose mass reaches top_p (at least one; equal values go by lower id first)
//   8 argmax over the survivors of l + Gumbel(seed, position, token), lowest id on ties.
#pragma once

#include <cstdint>

#include "engine/base/sample_row.h"
#include "engine/base/token_logprobs.h"
#include "engine/ops/sampling_noise.h"

namespace sluice {

struct SampleResult {
  int32_t token = 0;
  bool finite = true;  // false: a NaN or +inf among the logits, or nothing finite left after step 6; token is any then
  TokenLogprobs logprobs;
};

// Log-probability of a token that is already known (a prompt token).
struct LogprobRow {
  int32_t logits_row = 0;
  int32_t token = 0;
  int32_t num_top = 0;
};

}  // namespace sluice
