// An NVIDIA GPU through the CUDA runtime.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/device.h"

namespace sluice {

// The GPU with this number among those that the process sees (CUDA_VISIBLE_DEVICES is the driver's business).
// FAILED_PRECONDITION: no driver, one too old, no such GPU, or one below sm_80; the message says which, and which
// driver is needed.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int32_t ordinal = 0);

}  // namespace sluice
