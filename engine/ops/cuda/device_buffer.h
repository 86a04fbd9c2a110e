// Memory of a Device, owned.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cuda/device.h"

namespace sluice {

// The device outlives the buffer.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { Swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) pinned_ ? device_->FreePinned(data_) : device_->Free(data_);
  }

  static absl::StatusOr<DeviceBuffer> Create(Device* device, int64_t bytes) {
    SLUICE_ASSIGN_OR_RETURN(void* data, device->Allocate(bytes));
    return DeviceBuffer(device, data, bytes, false);
  }
  static absl::StatusOr<DeviceBuffer> CreatePinned(Device* device, int64_t bytes) {
    SLUICE_ASSIGN_OR_RETURN(void* data, device->AllocatePinned(bytes));
    return DeviceBuffer(device, data, bytes, true);
  }
  // Device memory holding `values`, which have been copied when this returns.
  template <typename T>
  static absl::StatusOr<DeviceBuffer> Copy(Device* device, std::span<const T> values) {
    const int64_t bytes = static_cast<int64_t>(values.size_bytes());
    SLUICE_ASSIGN_OR_RETURN(DeviceBuffer buffer, Create(device, bytes));
    device->Upload(buffer.data_, values.data(), bytes);
    SLUICE_RETURN_IF_ERROR(device->Synchronize());
    return buffer;
  }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  DeviceBuffer(Device* device, void* data, int64_t bytes, bool pinned)
      : device_(device), data_(data), bytes_(bytes), pinned_(pinned) {}
  void Swap(DeviceBuffer& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(pinned_, other.pinned_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  bool pinned_ = false;
};

}  // namespace sluice
