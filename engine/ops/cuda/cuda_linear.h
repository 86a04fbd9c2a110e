// Products of activations with the weights of a layer.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/ops/cuda/cuda_context.h"
#include "engine/ops/cuda/kernels/gemm.h"

namespace sluice {

// [rows, in] of the device's element, or f32 for a matrix that is kept in f32.
struct GemmInput {
  const void* data = nullptr;
  int64_t stride = 0;  // elements
};

// out = x * weights^T + bias: f32 [rows, out features].
void MultiplyToF32(CudaContext& context, const LinearWeights* weights, const GemmInput& x, const VectorWeights* bias,
                   int32_t num_rows, float* out);

// x += [post_norm](in * weights^T + bias)
void MultiplyIntoResidual(CudaContext& context, const LinearWeights* weights, const GemmInput& in,
                          const VectorWeights* bias, const std::optional<NormArgs>& post_norm, float* x);

// The input of a sublayer's first product: [norm](x), rounded to the device's element.
GemmInput NormedInput(CudaContext& context, const Activations* x, const std::optional<NormArgs>& norm);

// How a feed-forward layer's first product becomes the input of its second.
struct HiddenArgs {
  ActivationKind activation = ActivationKind::kSilu;
  float alpha = 1.702f, limit = 7.0f;
  bool gated = true;
};

// act(gate * h) * (up * h), or act(up * h): [num_tokens, hidden] under Scratch::kHidden.
GemmInput Hidden(CudaContext& context, const LinearWeights* weights, const GemmInput& h, const VectorWeights* bias,
                 const HiddenArgs& args);

}  // namespace sluice
