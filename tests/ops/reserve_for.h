// Ops::Reserve for tests that run operations one by one.
#pragma once

#include "absl/status/status.h"
#include "engine/ops/ops.h"

namespace sluice {

inline absl::Status ReserveFor(Ops* ops, int32_t max_tokens, int32_t max_logits, int32_t vocab_size,
                               bool expands_latents = false) {
  StepLimits limits;
  limits.max_tokens = limits.max_seqs = max_tokens;
  limits.max_logits = max_logits;
  limits.vocab_size = vocab_size;
  limits.max_context_tokens = 1 << 14;
  limits.expands_latents = expands_latents;
  return ops->Reserve(limits, {}, [](KvCache*) {});
}

}  // namespace sluice
