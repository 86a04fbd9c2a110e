// The kernels that LaunchAttention chooses from, each with the arguments it can run.
#pragma once

#include "engine/ops/cuda/kernels/attention.h"

namespace sluice::cuda {

// Any sizes and types. Reads no plan.
void LaunchScalarAttention(const AttentionKernelArgs& args, Stream stream);

}  // namespace sluice::cuda
