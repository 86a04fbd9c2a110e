// The device side as the engine sees it. Implemented by engine/runtime/runner.h; tests put a small deterministic
// stand-in here and need no model.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "engine/scheduler/step_plan.h"

namespace sluice {

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // True if Launch returns while the step is still to be computed. Then one more step may be launched before this one's
  // result is taken, with StepPlan::token_sources for the tokens that only the device knows. Steps take effect in the
  // order of their launches: a block that one step reads the next may overwrite.
  virtual bool launches_async() const { return false; }

  // Computes the rows of `plan` (at least one), writes their K and V, and draws a token for every entry of
  // plan.samples. `plan` and all it points to stay valid until the call returns. An error, here and from Take, means
  // that the device cannot go on: the engine gives up and calls no more. Both are called on the engine thread only.
  virtual absl::Status Launch(const StepPlan& plan) = 0;

  // The result of the oldest step launched that has not been taken, once it is there; its arrays are parallel to the
  // plan's. Logits without a finite value are reported by SampledToken::finite, sequence by sequence.
  virtual absl::StatusOr<StepResult> Take() = 0;

  // What each thread that computes is at, in one line, for the log of a process whose steps have stopped; empty if there is
  // nothing to say. Any thread, also during a step.
  virtual std::string DescribeWorkers() const { return ""; }

  // One step alone.
  absl::StatusOr<StepResult> Run(const StepPlan& plan) {
    SLUICE_RETURN_IF_ERROR(Launch(plan));
    return Take();
  }
};

}  // namespace sluice
