#include "tests/gpu/measure.h"

#include <algorithm>
#include <chrono>

#include "engine/base/status_macros.h"
#include "tests/gpu/bench_kernels.h"

namespace sluice::cuda_testing {
namespace {

constexpr double kSecondsOfAReplay = 3e-3;
constexpr int kReplays = 5;

}  // namespace

void* Arena::New(int64_t bytes) {
  if (!status_.ok()) return nullptr;
  absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Create(device_, bytes);
  Keep(buffer.status());
  if (!buffer.ok()) return nullptr;
  buffers_.push_back(*std::move(buffer));
  return buffers_.back().data();
}

void* Arena::Random(int64_t bytes) {
  void* data = New(bytes);
  if (data != nullptr) LaunchFill(data, bytes, static_cast<uint32_t>(buffers_.size()), device_->stream());
  return data;
}

void* Arena::Zeros(int64_t bytes) {
  void* data = New(bytes);
  if (data != nullptr) device_->Zero(data, bytes);
  return data;
}

absl::StatusOr<double> SecondsOf(const Bench& bench, double floor_seconds, absl::FunctionRef<void(int64_t)> enqueue) {
  using Clock = std::chrono::steady_clock;
  Device& device = *bench.device;
  const int64_t calls =
      bench.tiny ? 2 : std::clamp<int64_t>(static_cast<int64_t>(kSecondsOfAReplay / floor_seconds), 2, 1000);
  // Once outside of a recording: faults of the first launch are told apart, and attributes are set.
  enqueue(0);
  SLUICE_RETURN_IF_ERROR(device.Synchronize());
  device.BeginCapture();
  for (int64_t i = 0; i < calls; ++i) enqueue(i);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Device::CapturedGraph> recording, device.EndCapture());
  std::vector<double> seconds;
  for (int i = 0; i < (bench.tiny ? 1 : 1 + kReplays); ++i) {
    const Clock::time_point start = Clock::now();
    device.Replay(*recording);
    SLUICE_RETURN_IF_ERROR(device.Synchronize());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  if (!bench.tiny) seconds.erase(seconds.begin());  // the first replay uploads the graph
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2] / static_cast<double>(calls);
}

int64_t OperandsInTurn(const Bench& bench, int64_t bytes) {
  constexpr int64_t kEnough = 200'000'000;
  return bench.tiny ? 2 : std::clamp<int64_t>(kEnough / std::max<int64_t>(bytes, 1), 2, 256);
}

}  // namespace sluice::cuda_testing
