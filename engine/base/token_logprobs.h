// Log-probabilities reported for one token, always of the raw distribution (before penalties, bias and temperature).
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm
};

struct TokenLogprobs {
  TokenLogprob chosen;
  int32_t rank = 0;               // 1 = the most likely token; ties count in favour of `chosen`
  std::vector<TokenLogprob> top;  // most likely first, ties by lower id; as many as were asked for
};

}  // namespace sluice
