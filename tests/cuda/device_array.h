// Arrays in device memory, for tests of kernels: the emulation's (tests/cuda_on_cpu) or a GPU's (tests/gpu), NaN until
// written and guarded at both ends.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sluice::cuda_testing {

void* Allocate(size_t bytes);  // filled with 0xff: NaN, or -1
void Free(void* start);
void CopyToDevice(void* device, const void* host, size_t bytes);
// Waits for all launches. A fault of the device or a write beyond an array aborts.
void CopyToHost(void* host, const void* device, size_t bytes);

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size = 0) : size_(size), data_(static_cast<T*>(Allocate(size * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { Write(values); }
  ~DeviceArray() { Free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

  void Write(std::span<const T> values) { CopyToDevice(data_, values.data(), values.size_bytes()); }
  std::vector<T> Read() const {
    std::vector<T> values(size_);
    CopyToHost(values.data(), data_, size_ * sizeof(T));
    return values;
  }

 private:
  size_t size_;
  T* data_;
};

}  // namespace sluice::cuda_testing
