#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/attention_kernels.h"

namespace sluice::cuda {

void LaunchAttention(const AttentionKernelArgs& args, Stream stream) {
  if (args.step.num_tokens == 0) return;
  LaunchScalarAttention(args, stream);
}

}  // namespace sluice::cuda
