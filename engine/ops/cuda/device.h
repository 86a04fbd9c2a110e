// What CudaOps needs of a GPU below its kernels: memory, copies, one stream in which everything runs in order. Two
// implementations: NVIDIA's runtime (cuda_device.h), and host memory with a stream that runs when it is waited
// for (tests/cuda_on_cpu/emulated_device.h), so that everything above runs, and is tested, on a machine without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice {

// One caller thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string Name() const = 0;  // "NVIDIA H200"
  virtual cuda::Stream stream() const = 0;
  virtual int32_t num_sms() const = 0;
  virtual int64_t FreeBytes() const = 0;  // of device memory

  // 256-byte aligned. RESOURCE_EXHAUSTED with the bytes asked for and those free.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* data) = 0;  // waits for what is enqueued
  // Host memory that copies need not be staged from.
  virtual absl::StatusOr<void*> AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(void* data) = 0;

  // In stream order. The host memory stays as it is until a later Synchronize, or a Wait for an event behind, returns;
  // it may be any memory, but the call returns at once only if it is pinned.
  virtual void Upload(void* device, const void* host, int64_t bytes) = 0;
  virtual void Download(void* host, const void* device, int64_t bytes) = 0;
  virtual void Zero(void* device, int64_t bytes) = 0;

  // Waits for all that was enqueued. INTERNAL: something enqueued since the last call failed; the device is lost.
  virtual absl::Status Synchronize() = 0;

  // A place in the stream: Wait returns, as Synchronize, once all that was enqueued before the last Record has run; at
  // once if there was none. Events go before their device.
  class Event {
   public:
    virtual ~Event() = default;
  };
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  virtual void Record(Event* event) = 0;
  virtual absl::Status Wait(const Event& event) = 0;

  // What is enqueued between the two is recorded and not run; a CUDA graph runs as a whole, any number of times. It
  // takes memory of the device. RESOURCE_EXHAUSTED: there is none left, and the device is whole.
  class CapturedGraph {
   public:
    virtual ~CapturedGraph() = default;
  };
  virtual void BeginCapture() = 0;
  virtual absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() = 0;
  virtual void Replay(const CapturedGraph& graph) = 0;
};

}  // namespace sluice
