// What is refused at the engine's front, so that nothing a caller sends can stop a step or wait for ever.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "engine/engine_options.h"
#include "engine/request.h"

namespace sluice {

// INVALID_ARGUMENT naming the option.
absl::Status ValidateEngineOptions(const EngineOptions& options);

struct SamplingRange {
  float min = std::numeric_limits<float>::lowest(), max = std::numeric_limits<float>::max();
  bool above_min = false;  // min itself is not in it
};

// How far a caller lets its requests go; by default what can be computed.
struct SamplingRanges {
  SamplingRange temperature{.min = 0};
  SamplingRange repetition_penalty{.min = 0, .above_min = true};
  SamplingRange frequency_penalty, presence_penalty, logit_bias;
};

// The checks of ValidateRequest that need no prompt.
absl::Status ValidateSampling(const SamplingParams& sampling, const EngineOptions& options,
                              const SamplingRanges& ranges = {});

// Those of a prompt's length and of max_tokens.
absl::Status ValidateLength(int64_t num_prompt_tokens, int64_t max_tokens, const EngineOptions& options);

// INVALID_ARGUMENT whose message starts with the field's name and ": ", with one of the reasons (engine/error_reason.h)
//   INVALID_FIELD            a value outside its range
//   INVALID_TOKEN            a token id outside the vocabulary
//   CONTEXT_LENGTH_EXCEEDED  prompt and max_tokens together are longer than max_model_len
//   KV_CAPACITY_EXCEEDED     they need more blocks at a time than the whole pool has
// REQUIRES: ValidateEngineOptions(options).ok()
absl::Status ValidateRequest(const Request& request, const EngineOptions& options);

}  // namespace sluice
