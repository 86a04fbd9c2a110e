#include "tests/model/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/float16.h"

namespace sluice::testing {
namespace {

constexpr int64_t kBlock = 32;

std::vector<float> Values(const TensorView& tensor) {
  std::vector<float> values(size_t(tensor.num_elements()));
  DequantizeRow(tensor.type, tensor.data.data(), tensor.num_elements(), values.data());
  return values;
}

void PutF16(float value, std::vector<uint8_t>* out) {
  const uint16_t bits = FloatToF16(value);
  out->push_back(uint8_t(bits));
  out->push_back(uint8_t(bits >> 8));
}

void PutQ8_0(const float* x, std::vector<uint8_t>* out) {
  float largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  PutF16(largest / 127, out);
  const float d = F16ToFloat(FloatToF16(largest / 127));
  for (int64_t i = 0; i < kBlock; ++i) {
    out->push_back(uint8_t(int8_t(d == 0 ? 0 : std::clamp(std::round(x[i] / d), -127.f, 127.f))));
  }
}

void PutQ4_1(const float* x, std::vector<uint8_t>* out) {
  const auto [low, high] = std::minmax_element(x, x + kBlock);
  PutF16((*high - *low) / 15, out);
  PutF16(*low, out);
  const float d = F16ToFloat(FloatToF16((*high - *low) / 15)), m = F16ToFloat(FloatToF16(*low));
  const auto nibble = [&](float v) { return uint8_t(d == 0 ? 0 : std::clamp(std::round((v - m) / d), 0.f, 15.f)); };
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    out->push_back(uint8_t(nibble(x[i]) | nibble(x[i + kBlock / 2]) << 4));
  }
}

}  // namespace

bool CanQuantise(const TensorView& tensor) {
  const bool plain =
      tensor.type == TensorType::kF32 || tensor.type == TensorType::kF16 || tensor.type == TensorType::kBF16;
  return plain && tensor.shape.size() >= 2 && tensor.shape.back() % kBlock == 0 && !absl::EndsWith(tensor.name, "bias");
}

void Quantise(TensorType type, TensorView* tensor, std::vector<uint8_t>* bytes) {
  SLUICE_CHECK(CanQuantise(*tensor));
  const std::vector<float> values = Values(*tensor);
  bytes->clear();
  for (size_t i = 0; i < values.size(); i += kBlock) {
    type == TensorType::kQ8_0 ? PutQ8_0(&values[i], bytes) : PutQ4_1(&values[i], bytes);
  }
  SLUICE_CHECK(int64_t(bytes->size()) == TensorBytes(type, tensor->num_elements()));
  tensor->type = type;
  tensor->data = *bytes;
}

void Dequantise(const TensorView& tensor, TensorView* values, std::vector<uint8_t>* bytes) {
  const std::vector<float> floats = Values(tensor);
  bytes->resize(floats.size() * sizeof(float));
  std::memcpy(bytes->data(), floats.data(), bytes->size());
  values->type = TensorType::kF32;
  values->data = *bytes;
}

}  // namespace sluice::testing
