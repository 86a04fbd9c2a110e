// From rows of logits to tokens, by the rule of engine/ops/sampling.h. One row's token depends on that row only.
#pragma once

#include <cstdint>

#include "engine/base/draw_params.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

// logits[i] = softcap(scale * logits[i]); softcap 0: none.
void LaunchFinishLogits(float* logits, int64_t count, float scale, float softcap, Stream stream);

// SampleRow of engine/base/sample_row.h, its lists as ranges of one array of ints (and of floats, for the biases).
struct SampleRowData : DrawParams {
  int32_t logits_row = 0;
  int64_t position = 0;
  int32_t prompt_begin = 0, prompt_end = 0;  // into ints: tokens, each id inside the vocabulary
  int32_t output_begin = 0, output_end = 0;
  int32_t allowed_begin = 0, allowed_end = 0;  // into bitmasks, TokenBitmaskWords(vocab_size) words, or none: all are allowed
  int32_t masked_begin = 0, masked_end = 0;
  int32_t bias_begin = 0, bias_end = 0;  // tokens in ints, no token twice; their biases at the same places of floats
};

struct SampleArgs {
  int32_t num_rows = 0;
  int32_t vocab_size = 0;
  const float* logits = nullptr;        // [., vocab_size], left as they are; vocab_size up to 2^20
  const SampleRowData* rows = nullptr;  // [num_rows]
  const int32_t* ints = nullptr;
  const float* floats = nullptr;
  const uint32_t* bitmasks = nullptr;  // base/token_bitmask.h
  float* scratch = nullptr;   // [num_rows, vocab_size] processed logits of rows that need them
  int32_t* counts = nullptr;  // [num_rows, vocab_size], all zero before and after
  void* workspace = nullptr;  // SampleWorkspaceBytes, 16-byte aligned
  int32_t* tokens = nullptr;  // [num_rows] out; 0 where not finite
  int32_t* finite = nullptr;  // [num_rows] out: 1, or 0 for a NaN, +inf, or nothing finite among the logits
};
int64_t SampleWorkspaceBytes(int32_t num_rows, int32_t vocab_size);
void LaunchSample(const SampleArgs& args, Stream stream);

// Log-probabilities of rows of raw logits: of one token (after LaunchSample its own: `tokens` may be that array), and
// of the num_top most likely (value descending, lower id first on ties). Of a row that is not finite: NaN, rank 0, and
// tokens -1 of logprob NaN.
struct LogprobArgs {
  int32_t num_rows = 0;
  int32_t vocab_size = 0;
  const float* logits = nullptr;
  const int32_t* logits_rows = nullptr;  // [num_rows]
  const int32_t* tokens = nullptr;       // [num_rows]
  const int32_t* num_top = nullptr;      // [num_rows], each <= max_top; negative: nothing wanted of this row
  int32_t max_top = 0;                   // up to the whole vocabulary
  void* workspace = nullptr;             // LogprobWorkspaceBytes, 16-byte aligned
  float* logprobs = nullptr;             // [num_rows] out
  int32_t* ranks = nullptr;              // [num_rows] out: 1 + number of tokens that are more likely
  int32_t* top_tokens = nullptr;         // [num_rows, max_top] out
  float* top_logprobs = nullptr;         // [num_rows, max_top] out: the first num_top of a row are written
};
int64_t LogprobWorkspaceBytes(int32_t num_rows, int32_t vocab_size, int32_t max_top);
void LaunchLogprobs(const LogprobArgs& args, Stream stream);

}  // namespace sluice::cuda
