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
  int32_t mla_expand_from = INT32_MAX;  // MlaAttentionArgs::expand_from
};

// Loads the weights, sizes the KV cache from the memory that is left then, reserves everything and warms up. What was
// decided (blocks, context) is in the runner's options. Errors: those of LoadWeights, SizeKvCache and Runner::Create.
absl::StatusOr<std::unique_ptr<Runner>> LoadRunner(const LoadedModel& model, std::unique_ptr<Ops> ops,
                                                   const LoadRunnerOptions& options);

}  // namespace sluice
