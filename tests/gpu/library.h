// The vendor's products beside our own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/gemm_library.h"

namespace sluice::cuda_testing {

// For the GPU of NewTestDevice, which exists. An error says why there is none. With the emulated device: one that only
// counts what it is asked for, and writes nothing.
absl::StatusOr<std::unique_ptr<GemmLibrary>> NewTestLibrary();

}  // namespace sluice::cuda_testing
