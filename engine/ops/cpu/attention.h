// Ops::Attention on the CPU.
#pragma once

#include "engine/ops/cpu/attention_plan.h"
#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

class CpuAttention {
 public:
  // RESOURCE_EXHAUSTED if there is no memory.
  absl::Status Reserve(CpuContext& context) { return planner_.Reserve(context); }
  void Run(CpuContext& context, const AttentionArgs& args);

 private:
  AttentionPlanner planner_;
  AlignedBuffer worker_buffers_;
};

}  // namespace sluice
