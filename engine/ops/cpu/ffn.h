// Ops::Ffn on the CPU.
#pragma once

#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

void CpuFfn(CpuContext& context, const DenseFfnArgs& args);

}  // namespace sluice
