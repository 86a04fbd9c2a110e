// The numbers by which a token is drawn from a row of logits (engine/ops/sampling.h has the rule): what a request says, what
// a row of a step asks for and what a kernel reads are the same struct. Plain values, copied as they are to any device.
#pragma once

#include <cstdint>

namespace sluice {

struct DrawParams {
  float temperature = 1;         // >= 0; 0: greedy, and min_p, top_k, top_p are not looked at
  float min_p = 0;               // [0, 1]; 0: off
  int32_t top_k = 0;             // 0: off; ties at the k-th value stay
  float top_p = 1;               // (0, 1]; 1: off
  float repetition_penalty = 1;  // > 0; over prompt and output
  float frequency_penalty = 0;   // over output only, times the count
  float presence_penalty = 0;    // over output only
  uint64_t seed = 0;  // the token at an absolute position depends on (seed, position) and the logits, on nothing else
};

}  // namespace sluice
