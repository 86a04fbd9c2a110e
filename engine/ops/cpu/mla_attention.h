// Ops::MlaAttention on the CPU.
//
// Absorbed: queries of all rows and heads into the latent space; attention over the latents, whose sixteen lanes are
// sixteen heads of a row; weighted latents out to values. Expanded: attention per head as over any other keys and
// values, each tile made from the latents once for all rows of a unit.
#pragma once

#include <vector>

#include "engine/ops/cpu/attention_plan.h"
#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

class CpuMla {
 public:
  // RESOURCE_EXHAUSTED if there is no memory.
  absl::Status Reserve(CpuContext& context) { return planner_.Reserve(context); }
  void Attention(CpuContext& context, const MlaAttentionArgs& args);

 private:
  // Fills ranges_ with the rows of the form.
  void FindRows(const CpuContext& context, const RowChoice& choice);
  void RunAbsorbed(CpuContext& context, const MlaAttentionArgs& args, const RowChoice& rows);
  void RunExpanded(CpuContext& context, const MlaAttentionArgs& args, const RowChoice& rows);

  AttentionPlanner planner_;
  AlignedBuffer worker_buffers_, latents_;
  std::vector<RowRange> ranges_;
};

}  // namespace sluice
