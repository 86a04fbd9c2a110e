// Scratch memory that grows to the largest size asked for and then stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "engine/base/check.h"

namespace sluice {

class AlignedBuffer {
 public:
  // At least `count` values of T, 64-byte aligned, content undefined. Earlier pointers are void if the buffer grows.
  template <class T>
  T* Reserve(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > bytes_) {
      data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, bytes)));
      SLUICE_CHECK(data_ != nullptr);
      bytes_ = bytes;
    }
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace sluice
