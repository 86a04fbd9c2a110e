// The device side as the engine sees it: one call per step. Implemented by engine/runtime/runner.h; tests put a small
// deterministic stand-in here and need no model.
#pragma once

#include "absl/status/statusor.h"
#include "engine/scheduler/step_plan.h"

namespace sluice {

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Computes the rows of `plan` (at least one), writes their K and V, and draws a token for every entry of
  // plan.samples; the result's arrays are parallel to the plan's. `plan` and all it points to stay valid until the call
  // returns. Logits without a finite value are reported by SampledToken::finite, sequence by sequence. An error means
  // that the device cannot go on: the engine gives up and calls no more.
  // Called on the engine thread only.
  virtual absl::StatusOr<StepResult> Run(const StepPlan& plan) = 0;
};

}  // namespace sluice
