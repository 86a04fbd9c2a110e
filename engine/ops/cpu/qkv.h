// Ops::Qkv on the CPU.
#pragma once

#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

void CpuQkv(CpuContext& context, const QkvArgs& args);

}  // namespace sluice
