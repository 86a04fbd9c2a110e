// From an opened model and a device to something that runs steps.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/model_loader.h"
#include "engine/ops/ops.h"
#include "engine/runtime/kv_sizing.h"
#include "engine/runtime/runner.h"

namespace sluice {

struct LoadRunnerOptions {
  KvSizingOptions kv;                   // what it says of blocks and steps holds for the runner too
  NumericsOptions numerics;             // RunnerOptions
  int32_t max_logprobs = 20;            // RunnerOptions
  int32_t max_adjusted = 1100;
};

// Loads the weights, reserves what steps need, sizes the KV cache from the memory that is left then, and warms up. What
// was decided (blocks, context) is in the runner's options. Errors: those of LoadWeights, SizeKvCache and Runner.
// RESOURCE_EXHAUSTED: one of the three does not fit; says what it needs and what there is, and the flag to change.
// Weights that cannot fit are refused before any of them is loaded.
absl::StatusOr<std::unique_ptr<Runner>> LoadRunner(const LoadedModel& model, std::unique_ptr<Ops> ops,
                                                   const LoadRunnerOptions& options);

}  // namespace sluice
