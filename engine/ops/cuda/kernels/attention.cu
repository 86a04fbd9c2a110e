#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "engine/ops/cuda/kernels/attention_plan.cuh"

namespace sluice::cuda {
namespace {

template <class T>
constexpr KvElement kElementOf = KvElement::kBF16;
template <>
constexpr KvElement kElementOf<__half> = KvElement::kF16;

// Whether there was an instance.
template <class T, int kDim, int kValueDim>
bool TryMma(const AttentionKernelArgs& args, Stream stream) {
  if (args.element != Element::kBF16 || args.kv.element != kElementOf<T> || args.latent_value_dim > 0 ||
      args.kv.head_dim != kDim || args.kv.value_head_dim != kValueDim) {
    return false;
  }
  if (!IsDecodeStep(args.step)) LaunchPrefillAttention<T, kDim, kValueDim>(args, stream);
  LaunchDecodeAttention<T, kDim, kValueDim>(args, stream);
  return true;
}

}  // namespace

void LaunchAttention(const AttentionKernelArgs& args, Stream stream) {
  if (args.step.num_tokens == 0) return;
#define SLUICE_INSTANCE(T, kDim, kValueDim) \
  if (TryMma<T, kDim, kValueDim>(args, stream)) return;
  SLUICE_ATTENTION_INSTANCES(SLUICE_INSTANCE)
#undef SLUICE_INSTANCE
  LaunchScalarAttention(args, stream);
}

}  // namespace sluice::cuda
