// What is refused at the engine's door, so that nothing a caller sends can stop a step or wait for ever.
#pragma once

#include "absl/status/status.h"
#include "engine/engine_options.h"
#include "engine/request.h"

namespace sluice {

// INVALID_ARGUMENT naming the option.
absl::Status ValidateEngineOptions(const EngineOptions& options);

// INVALID_ARGUMENT whose message starts with the field's name, with one of the reasons (engine/error_reason.h)
//   INVALID_FIELD            a value outside its range
//   INVALID_TOKEN            a token id outside the vocabulary
//   CONTEXT_LENGTH_EXCEEDED  prompt and max_tokens together are longer than max_model_len
//   KV_CAPACITY_EXCEEDED     they need more blocks at a time than the whole pool has
// REQUIRES: ValidateEngineOptions(options).ok()
absl::Status ValidateRequest(const Request& request, const EngineOptions& options);

}  // namespace sluice
