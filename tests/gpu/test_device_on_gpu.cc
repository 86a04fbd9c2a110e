#include "engine/ops/cuda/cuda_device.h"
#include "tests/cuda/test_device.h"

namespace sluice::cuda_testing {

absl::StatusOr<std::unique_ptr<Device>> NewTestDevice(int64_t* num_replays) {
  if (num_replays != nullptr) *num_replays = -1;
  return NewCudaDevice();
}

}  // namespace sluice::cuda_testing
