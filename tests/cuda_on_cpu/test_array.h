// Device memory as a container, for the emulation's own tests: readable and writable by the host as it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "tests/cuda_on_cpu/device_memory.h"

namespace sluice::cuda_testing {

template <class T>
class Array {
 public:
  explicit Array(size_t size) : size_(size), data_(static_cast<T*>(cuda_on_cpu::AllocateDevice(size * sizeof(T)))) {}
  Array(std::initializer_list<T> values) : Array(values.size()) { std::copy(values.begin(), values.end(), begin()); }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    std::copy(values.begin(), values.end(), begin());
  }
  ~Array() { cuda_on_cpu::FreeDevice(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() { return data_; }
  size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  size_t size_;
  T* data_;
};

}  // namespace sluice::cuda_testing
