#include "tests/cuda/test_device.h"
#include "tests/cuda_on_cpu/emulated_device.h"

namespace sluice::cuda_testing {

absl::StatusOr<std::unique_ptr<Device>> NewTestDevice(int64_t* num_replays) {
  return NewEmulatedDevice({.num_replays = num_replays});
}

}  // namespace sluice::cuda_testing
