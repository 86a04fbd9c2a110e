// Made-up values for tests of kernels, and how far results may be off.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/base/float16.h"
#include "engine/ops/cuda/kernels/types.h"
#include "tests/cuda/device_array.h"

namespace sluice::cuda_testing {

inline std::vector<float> Normal(size_t n, uint32_t seed, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// An array of Element, of exactly n, NaN until written.
class ElementArray {
 public:
  ElementArray(cuda::Element element, size_t n) : element_(element), bytes_(n * size_t(cuda::ElementBytes(element))) {}
  ElementArray(cuda::Element element, const std::vector<float>& values) : ElementArray(element, values.size()) {
    std::vector<uint8_t> bytes(bytes_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (element == cuda::Element::kF32) {
        std::copy_n(reinterpret_cast<const uint8_t*>(&values[i]), 4, &bytes[4 * i]);
      } else {
        const uint16_t b = FloatToBf16(values[i]);
        std::copy_n(reinterpret_cast<const uint8_t*>(&b), 2, &bytes[2 * i]);
      }
    }
    bytes_.Write(bytes);
  }

  void* data() { return bytes_.data(); }
  cuda::Element element() const { return element_; }
  std::vector<float> Read() const {
    const std::vector<uint8_t> bytes = bytes_.Read();
    std::vector<float> values(bytes.size() / size_t(cuda::ElementBytes(element_)));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t b = 0;
      if (element_ == cuda::Element::kF32) {
        std::copy_n(&bytes[4 * i], 4, reinterpret_cast<uint8_t*>(&values[i]));
      } else {
        std::copy_n(&bytes[2 * i], 2, reinterpret_cast<uint8_t*>(&b));
        values[i] = Bf16ToFloat(b);
      }
    }
    return values;
  }

 private:
  const cuda::Element element_;
  DeviceArray<uint8_t> bytes_;
};

// max |got - want| / max |want|; NaN where a NaN was not wanted.
template <class Want>
double RelativeError(const std::vector<float>& got, const std::vector<Want>& want) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(double(want[i])) && std::isnan(got[i])) continue;
    const double difference = std::abs(double(got[i]) - double(want[i]));
    if (std::isnan(difference)) return difference;
    error = std::max(error, difference);
    largest = std::max(largest, std::abs(double(want[i])));
  }
  return error == 0 ? 0 : error / largest;
}

inline double Tolerance(cuda::Element element) { return element == cuda::Element::kF32 ? 3e-6 : 5e-3; }

}  // namespace sluice::cuda_testing
