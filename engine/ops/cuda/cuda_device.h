// An NVIDIA GPU through the CUDA runtime.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/device.h"

namespace sluice {

// The first GPU that the process sees (CUDA_VISIBLE_DEVICES is the driver's business). FAILED_PRECONDITION: no driver,
// one too old, no GPU, or one below sm_80; the message says which, and which driver is needed.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice();

}  // namespace sluice
