// From rows of logits to tokens, by the rule of engine/ops/sampling.h. One row's token depends on that row only.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

// logits[i] = softcap(scale * logits[i]); softcap 0: none.
void LaunchFinishLogits(float* logits, int64_t count, float scale, float softcap, Stream stream);

// SampleRow of engine/ops/sampling.h, its lists as ranges of one array of ints (and of floats, for the biases).
struct SampleRowData {
  int32_t logits_row;
  float temperature, min_p, top_p;
  int32_t top_k;
  float repetition_penalty, frequency_penalty, presence_penalty;
  int32_t prompt_begin, prompt_end;  // into ints: tokens, each id inside the vocabulary
  int32_t output_begin, output_end;
  int32_t masked_begin, masked_end;
  int32_t bias_begin, bias_end;  // tokens in ints, no token twice; their biases at the same places of floats
  uint64_t seed;
  int64_t position;
};

struct SampleArgs {
  int32_t num_rows = 0;
  int32_t vocab_size = 0;
  const float* logits = nullptr;        // [., vocab_size], left as they are; vocab_size up to 2^20
  const SampleRowData* rows = nullptr;  // [num_rows]
  const int32_t* ints = nullptr;
  const float* floats = nullptr;
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
