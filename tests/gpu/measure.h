// Times of work on a device, by the host's clock, and memory to work on.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/ops/cuda/device.h"
#include "engine/ops/cuda/device_buffer.h"
#include "tests/gpu/report.h"

namespace sluice::cuda_testing {

// What the floors of all measurements rest on: an H200's measured copy rate, and the matrix rate it sustains.
inline constexpr double kBytesPerSecond = 4.3e12, kFlopsPerSecond = 790e12;
constexpr double FloorSeconds(double bytes, double flops) {
  const double by_bytes = bytes / kBytesPerSecond, by_flops = flops / kFlopsPerSecond;
  return by_bytes > by_flops ? by_bytes : by_flops;
}

struct Bench {
  Device* device = nullptr;
  Report* report = nullptr;
  bool tiny = false;  // sizes and repetitions for the emulated device: shows that it runs, not how fast
};

// Device memory that lives as long as the arena, filled with values of LaunchFill. Errors are kept: null from then on.
class Arena {
 public:
  explicit Arena(Device* device) : device_(device) {}
  void* Random(int64_t bytes);
  // All zero.
  void* Zeros(int64_t bytes);
  template <typename T>
  const T* Copy(const std::vector<T>& values) {
    void* to = New(static_cast<int64_t>(values.size() * sizeof(T)));
    if (to == nullptr) return nullptr;
    device_->Upload(to, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    Keep(device_->Synchronize());
    return static_cast<const T*>(to);
  }
  const absl::Status& status() const { return status_; }

 private:
  void* New(int64_t bytes);
  void Keep(const absl::Status& status) { status_.Update(status); }
  Device* const device_;
  std::deque<DeviceBuffer> buffers_;
  absl::Status status_;
};

// The median time of one call of `enqueue`, which enqueues work on the device's stream and is told how many calls there
// were before it (so that it can take turns among operands, none of which is in the L2 cache then). The calls are
// recorded, so that the host's part does not count. `floor_seconds` chooses how many make one measurement.
absl::StatusOr<double> SecondsOf(const Bench& bench, double floor_seconds, absl::FunctionRef<void(int64_t)> enqueue);

// How many operands of `bytes` each take turns so that the L2 cache (50 MB) does not help.
int64_t OperandsInTurn(const Bench& bench, int64_t bytes);

}  // namespace sluice::cuda_testing
