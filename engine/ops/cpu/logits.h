// Ops::Embed, AddPositions and Logits on the CPU: where token ids become rows, and rows become scores.
#pragma once

#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

void CpuEmbed(CpuContext& context, const LinearWeights& table, float scale, CpuActivations& x);
void CpuAddPositions(CpuContext& context, const LinearWeights& table, CpuActivations& x);

// logits: [num_logits][stride]
void CpuLogits(CpuContext& context, const LogitsArgs& args, float* logits, int64_t stride);

}  // namespace sluice
