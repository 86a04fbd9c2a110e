// The tiny models under tests/goldens/models and what transformers computes from them (tests/goldens/make.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::testing {

struct GoldenSequence {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;               // [token][vocab]
  std::vector<int32_t> state_positions;                 // of the next
  std::vector<std::vector<std::vector<float>>> states;  // [layer][state position][d_model], rounded to f16
};

struct GoldenModel {
  std::string name;
  std::string row;  // of the table of architectures
  std::string folder;
  float max_abs = 0;  // largest |logit|
  std::vector<GoldenSequence> sequences;
};

// max |a - b|, NaN if there is one. REQUIRES: equal sizes.
float LargestDifference(const std::vector<float>& a, const std::vector<float>& b);

// Names of all cases, ascending.
std::vector<std::string> GoldenNames();

// REQUIRES: one of GoldenNames().
GoldenModel ReadGolden(const std::string& name);

}  // namespace sluice::testing
