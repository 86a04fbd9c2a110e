// From a row of logits to a token, as plain data. The rule is the same on every device (the order is vLLM's):
//   1 raw log-probabilities (for reporting) = log_softmax(logits)
//   2 masked_tokens = -inf; 3 logit += bias; 4 repetition over prompt + output: l > 0 ? l / r : l * r
//   5 l -= frequency * count in output; 6 l -= presence * [count > 0]
//   7 temperature 0, or one that the largest overflows when divided by: the largest, lowest id on ties. Otherwise
//     l /= temperature, then keep
//     min_p: p >= min_p * p_max; top_k: the k largest, ties at the k-th stay; top_p: of the softmax of the survivors,
//     the smallest set of largest values whose mass reaches top_p (at least one; equal values go by lower id first)
//   8 argmax over the survivors of l + Gumbel(seed, position, token), lowest id on ties.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/token_logprobs.h"
#include "engine/ops/sampling_noise.h"

namespace sluice {

struct TokenBias {
  int32_t token;
  float bias;
};

struct SampleRow {
  int32_t logits_row = 0;
  float temperature = 1, min_p = 0, top_p = 1;
  int32_t top_k = 0;
  float repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  std::span<const int32_t> prompt_tokens, output_tokens;
  std::span<const int32_t> masked_tokens;
  std::span<const TokenBias> logit_bias;
  uint64_t seed = 0;
  int64_t position = 0;                 // of the token to be drawn
  std::optional<int32_t> num_logprobs;  // top-N to report; the chosen token always is
};

struct SampleResult {
  int32_t token = 0;
  bool finite = true;  // false: a NaN, +inf, or nothing finite among the logits
  TokenLogprobs logprobs;
};

// Log-probability of a token that is already known (a prompt token).
struct LogprobRow {
  int32_t logits_row = 0;
  int32_t token = 0;
  int32_t num_top = 0;
};

}  // namespace sluice
