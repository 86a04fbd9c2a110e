// Ops on an NVIDIA GPU: bf16 activations between kernels, the residual stream in f32, weights as the file stores them
// where a kernel reads that format and bf16 otherwise, a paged KV cache of bf16, f16, f32 or fp8.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/device.h"
#include "engine/ops/cuda/gemm_library.h"
#include "engine/ops/cuda/mla_expansion.h"
#include "engine/ops/ops.h"

namespace sluice {

struct CudaOpsOptions {
  cuda::Element activations = cuda::Element::kBF16;  // kF32: all in f32, weights too; for tests
  int32_t num_threads = 1;                           // of the host, that pack weights while they are loaded
  int32_t mla_pass_tokens = MlaExpansion::kPassTokens;  // no result depends on it; for tests
};

// The device and the library belong to the returned object; the library computes the rows with kRouteLibraryProducts, and
// without one nobody does. Its log says once, after loading, what weights became larger than in the file. UNIMPLEMENTED from LoadLinear: a matrix
// whose input features are no multiple of 8.
absl::StatusOr<std::unique_ptr<Ops>> NewCudaOps(std::unique_ptr<Device> device, const CudaOpsOptions& options,
                                                std::unique_ptr<GemmLibrary> library = nullptr);

}  // namespace sluice
