// Floors of models in real shapes, as they were computed by hand.
#include "tests/gpu/floors.h"

#include <gtest/gtest.h>

#include "tests/gpu/real_shapes.h"

namespace sluice::cuda_testing {
namespace {

const ModelSpec& SpecOf(const std::string& name) {
  static const auto* all = new std::vector<RealShape>(RealShapes());
  for (const RealShape& shape : *all) {
    if (shape.name == name) return shape.spec;
  }
  ADD_FAILURE() << name;
  return all->front().spec;
}

TEST(Floors, OfDecodeSteps) {
  struct Case {
    const char* model;
    int32_t batch;
    double ms_1k, ms_4k;
  };
  for (const Case& c :
       {Case{"Llama-3-8B", 1, 3.52, 3.62}, Case{"Llama-3-8B", 8, 3.74, 4.49}, Case{"Llama-3-8B", 128, 7.49, 19.47},
        Case{"Qwen3-4B", 1, 1.91, 2.01}, Case{"Qwen3-4B", 64, 4.12, 10.86}, Case{"Qwen3-0.6B", 1, 0.305, 0.386},
        Case{"Qwen3-0.6B", 64, 2.03, 7.27}, Case{"SmolLM2-135M", 1, 0.068, 0.084},
        Case{"SmolLM2-135M", 64, 0.414, 1.47}, Case{"DeepSeek-V2-Lite", 1, 1.15, 1.17},
        Case{"DeepSeek-V2-Lite", 32, 7.16, 7.87}, Case{"DeepSeek-V2-Lite", 128, 8.16, 11.0}}) {
    EXPECT_NEAR(DecodeCost(SpecOf(c.model), c.batch, 1024).floor_seconds() * 1e3, c.ms_1k, 0.01 * c.ms_1k) << c.model;
    EXPECT_NEAR(DecodeCost(SpecOf(c.model), c.batch, 4096).floor_seconds() * 1e3, c.ms_4k, 0.01 * c.ms_4k) << c.model;
  }
}

TEST(Floors, OfAPrompt) { EXPECT_NEAR(PrefillCost(SpecOf("Llama-3-8B"), 8192).floor_seconds() * 1e3, 167, 1); }

TEST(RealShapes, AreModels) {
  for (const RealShape& shape : RealShapes()) {
    EXPECT_TRUE(ValidateModelSpec(shape.spec).ok()) << shape.name;
    EXPECT_TRUE(ValidateModelSpec(Shrunk(shape.spec)).ok()) << shape.name;
  }
}

}  // namespace
}  // namespace sluice::cuda_testing
