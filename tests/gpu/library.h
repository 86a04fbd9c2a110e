// The vendor's products beside our own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/gemm_library.h"

namespace sluice::cuda_testing {

// For the GPU of NewTestDevice, which exists; beside the emulated device cuBLASLt is emulated, too, and
// refuses to prepare [64, 40]. An error says why
// there is none.
absl::StatusOr<std::unique_ptr<GemmLibrary>> NewTestLibrary();

}  // namespace sluice::cuda_testing
