// Specs of models that people run, in their real sizes.
#pragma once

#include <string>
#include <vector>

#include "engine/model/spec.h"

namespace sluice::cuda_testing {

struct RealShape {
  std::string name;
  ModelSpec spec;
};

// Llama-3-8B, Qwen3-4B, Qwen3-0.6B, SmolLM2-135M, DeepSeek-V2-Lite.
std::vector<RealShape> RealShapes();

// The same kinds of layers, two of them, so small that the emulated device computes them.
ModelSpec Shrunk(ModelSpec spec);

}  // namespace sluice::cuda_testing
