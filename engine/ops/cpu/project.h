// Ops::Project on the CPU, and how results are added to the residual stream.
#pragma once

#include <optional>

#include "engine/ops/cpu/cpu_context.h"
#include "engine/ops/cpu/operand.h"

namespace sluice {

void CpuProject(CpuContext& context, const ProjectArgs& args);

// x += [post_norm](operand * weight^T + bias), all rows of the step.
void AddLinearToResidual(CpuContext& context, const PackedLinear& weights, const Operand& operand, const float* bias,
                         const std::optional<NormArgs>& post_norm, CpuActivations& x);

}  // namespace sluice
