// Ops on an NVIDIA GPU: bf16 activations between kernels, the residual stream in f32, weights as the file stores them
// where a kernel reads that format and bf16 otherwise, a paged KV cache of bf16, f16, f32 or fp8.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/device.h"
#include "engine/ops/ops.h"

namespace sluice {

struct CudaOpsOptions {
  cuda::Element activations = cuda::Element::kBF16;  // kF32: all in f32, weights too; for tests
};

// The device belongs to the returned object. Its log says once, after loading, what weights became larger than in the
// file. UNIMPLEMENTED from LoadLinear: a matrix whose input features are no multiple of 8.
absl::StatusOr<std::unique_ptr<Ops>> NewCudaOps(std::unique_ptr<Device> device, const CudaOpsOptions& options);

}  // namespace sluice
