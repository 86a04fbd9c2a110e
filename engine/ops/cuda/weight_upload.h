// Weights on their way to the device: threads of the host pack a piece of some MiB into pinned memory while the device
// fetches the one before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cuda/device_buffer.h"

namespace sluice {

// One caller thread at a time. Threads and pinned memory are there from the first Send until Finish.
class WeightUpload {
 public:
  // REQUIRES: num_threads >= 1, the caller of Send among them.
  WeightUpload(Device* device, int32_t num_threads) : device_(device), num_threads_(num_threads) {}

  int32_t num_threads() const { return num_threads_; }

  // Fills `num_parts` parts of `part_bytes` each, one after the other in device memory from `to` on. fill(part,
  // worker, out) writes all of a part; it is called for different parts at a time, by at most one caller for a worker
  // in [0, num_threads). All calls have returned when Send does; the device has the bytes after the next Synchronize.
  absl::Status Send(std::byte* to, int64_t num_parts, int64_t part_bytes,
                    absl::FunctionRef<void(int64_t part, int worker, std::byte* out)> fill);

  // Waits for all that was sent. Threads end and memory is given back.
  absl::Status Finish();

 private:
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;  // a quarter of a ms of PCIe 5

  struct Piece {
    DeviceBuffer memory;  // pinned
    std::unique_ptr<Device::Event> sent;
  };

  Device* const device_;
  const int32_t num_threads_;
  std::unique_ptr<ThreadPool> pool_;
  std::array<Piece, 2> pieces_;
  size_t next_piece_ = 0;
};

}  // namespace sluice
