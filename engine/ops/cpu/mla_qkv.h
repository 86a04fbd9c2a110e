// Ops::MlaQkv on the CPU.
#pragma once

#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

void CpuMlaQkv(CpuContext& context, const MlaQkvArgs& args);

}  // namespace sluice
