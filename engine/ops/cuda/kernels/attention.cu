#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "engine/ops/cuda/kernels/attention_plan.cuh"
#include "engine/ops/cuda/kernels/attention_rows.cuh"

namespace sluice::cuda {
namespace {

template <class T>
constexpr KvElement kElementOf = KvElement::kBF16;
template <>
constexpr KvElement kElementOf<__half> = KvElement::kF16;

template <class T>
bool TakesMma(const AttentionKernelArgs& args, int32_t dim, int32_t value_dim, bool latent) {
  return args.element == Element::kBF16 && args.kv.element == kElementOf<T> && args.kv.head_dim == dim &&
         ValueDim(args) == value_dim && (args.latent_value_dim > 0) == latent;
}

// Whether there was an instance.
bool LaunchMma(const AttentionKernelArgs& args, Stream stream) {
#define SLUICE_INSTANCE(T, kDim, kValueDim)                                                 \
  if (TakesMma<T>(args, kDim, kValueDim, false)) {                                          \
    if (!IsDecodeStep(args.step)) LaunchPrefillAttention<T, kDim, kValueDim>(args, stream); \
    LaunchDecodeAttention<T, kDim, kValueDim>(args, stream);                                \
    return true;                                                                            \
  }
  SLUICE_ATTENTION_INSTANCES(SLUICE_INSTANCE)
#undef SLUICE_INSTANCE
#define SLUICE_INSTANCE(T, kDim, kValueDim)                  \
  if (TakesMma<T>(args, kDim, kValueDim, true)) {            \
    LaunchLatentAttention<T, kDim, kValueDim>(args, stream); \
    return true;                                             \
  }
  SLUICE_LATENT_INSTANCES(SLUICE_INSTANCE)
#undef SLUICE_INSTANCE
  return false;
}

}  // namespace

void LaunchAttention(const AttentionKernelArgs& args, Stream stream) {
  if (args.step.num_tokens == 0) return;
  if (!LaunchMma(args, stream)) LaunchScalarAttention(args, stream);
}

}  // namespace sluice::cuda
