// Products of activations with the weights of a layer.
//
// Rows that GemmRoute gives to the library meet plain weights, which are made of the packed ones before each product
// (kernels/unpack.h), in one scratch buffer of the largest matrix's size. That pass moves 2 to 4 bytes of memory a
// weight, at 4.3 TB/s as long as 2 flops a weight and row take for 330 rows at 700 TFLOP/s: a sixth of the time of a
// chunk of 2048 rows, and more than half of one of 512. The other way, plain weights kept beside the packed ones, would
// save that and cost 2 bytes a weight: all of a bf16 model again, four times a Q4 one. So chunks should be long where
// the library is used, and quantised models may use it too.
//
// Such rows meet weights rounded to bf16 (of quantised blocks and f16: an error of up to 2^-9 of each weight, where our
// kernels are exact) and differ from the other route's by about the rounding of x. Experts, routers, MLA's products by
// heads, f32 weights and logits always take our kernels.
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

// out = x * weights^T + bias: f32 [num_tokens, out features].
void MultiplyToF32(CudaContext& context, const LinearWeights* weights, const GemmInput& x, const VectorWeights* bias,
                   float* out);

// out = x * weights^T: f32 [num_rows, out features], for rows that are picked out of the step's.
void MultiplyPicked(CudaContext& context, const LinearWeights* weights, const GemmInput& x, int32_t num_rows,
                    float* out);

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
