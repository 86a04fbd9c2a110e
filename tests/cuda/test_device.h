// The device for what stands above Device: emulated (tests/cuda_on_cpu), or a GPU where the same sources are built for
// one (tests/gpu).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/device.h"

namespace sluice::cuda_testing {

// num_replays: counts Replay, if given; -1 from now on: this device does not count. FAILED_PRECONDITION: no GPU.
absl::StatusOr<std::unique_ptr<Device>> NewTestDevice(int64_t* num_replays = nullptr);

}  // namespace sluice::cuda_testing
