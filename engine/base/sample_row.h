// A row of logits from which a token is to be drawn, as the scheduler plans it and every device takes it.
//
// It is not the request's SamplingParams (engine/request.h): those own their lists and say when a sequence ends, a row views
// lists of its sequence, some of which change with every token. What both say stands once, in DrawParams. A GPU's kernels
// read a third form, cuda::SampleRowData: the same DrawParams, with places in one packed array instead of views.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/base/draw_params.h"

namespace sluice {

struct LogitBias {
  int32_t token = 0;
  float bias = 0;  // added to the raw logit
};

struct SampleRow : DrawParams {
  int32_t logits_row = 0;
  int64_t position = 0;  // of the token to be drawn
  // All of the sequence, but output_tokens need not be where no penalty looks at them.
  std::span<const int32_t> prompt_tokens, output_tokens;
  // The tokens that may be drawn (base/token_bitmask.h), TokenBitmaskWords(vocab_size) words; empty: all, at no cost.
  std::span<const uint32_t> allowed_tokens;
  std::span<const int32_t> masked_tokens;  // cannot be drawn either; a token may be there twice
  std::span<const LogitBias> logit_bias;   // no token twice
  std::optional<int32_t> num_logprobs;     // top-N to report; the chosen token always is
};

}  // namespace sluice
