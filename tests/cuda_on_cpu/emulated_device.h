// A Device without a GPU: the emulation's memory, a stream whose copies and kernels run only when somebody waits for
// them, recordings of launches. All that stands above Device so runs on any machine, NaN in every byte of device memory
// that nobody has written and of host memory that nobody has waited for.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/ops/cuda/device.h"

namespace sluice {

struct EmulatedDeviceOptions {
  int64_t memory_bytes = int64_t{4} << 30;  // what Allocate gives out at most
  int32_t num_sms = 3;                      // few, so that persistent grids take turns
  int64_t* num_replays = nullptr;           // counts Replay, if given
  int64_t* num_allocations = nullptr;       // counts Allocate and AllocatePinned
  int64_t* bytes_in_use = nullptr;          // of memory_bytes
  int64_t recording_bytes = 0;              // what each recording takes of them
  int32_t num_free_recordings = 0;          // but the first ones nothing
};

std::unique_ptr<Device> NewEmulatedDevice(const EmulatedDeviceOptions& options = {});

}  // namespace sluice
