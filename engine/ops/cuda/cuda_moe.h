// Ops::Moe on the GPU: places (row, choice) sorted by expert on the device, one grouped product for all gates and ups,
// one for all downs, and a sum per row in ascending order of experts. Nothing waits for the host.
#pragma once

#include "engine/ops/cuda/cuda_context.h"

namespace sluice {

void CudaMoe(CudaContext& context, const MoeArgs& args);

}  // namespace sluice
