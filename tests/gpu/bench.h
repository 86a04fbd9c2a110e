// The parts of gpu_bench. Errors are the device's.
#pragma once

#include "absl/status/status.h"
#include "tests/gpu/measure.h"

namespace sluice::cuda_testing {

// Bandwidth of reading and of copying; what a node of a graph costs.
absl::Status BenchMemory(const Bench& bench);
absl::Status BenchNodes(const Bench& bench);
// Products with weights: by shape, number of rows and kernel; by format; of a mixture of experts.
absl::Status BenchGemm(const Bench& bench);
absl::Status BenchFormats(const Bench& bench);
absl::Status BenchExperts(const Bench& bench);
// Attention: decode over batch and context, with heads and latent; prompts.
absl::Status BenchAttention(const Bench& bench);
// Norms and sampling.
absl::Status BenchRows(const Bench& bench);

}  // namespace sluice::cuda_testing
