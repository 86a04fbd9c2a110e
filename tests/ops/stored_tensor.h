// Random tensors in every stored weight type, for tests of packing and kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/dequantize.h"
#include "engine/base/float16.h"
#include "engine/base/tensor_view.h"

namespace sluice {

// Every type that a weight can have.
inline const std::vector<TensorType>& WeightTypes() {
  static const std::vector<TensorType> types = {
      TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,  TensorType::kQ8_0,
      TensorType::kQ2_K, TensorType::kQ3_K, TensorType::kQ4_K, TensorType::kQ5_K,  TensorType::kQ6_K,
      TensorType::kF32,  TensorType::kF16,  TensorType::kBF16, TensorType::kMXFP4, TensorType::kF8E4M3};
  return types;
}

struct StoredTensor {
  StoredTensor() = default;
  StoredTensor(StoredTensor&&) = default;  // a copy's view would point into the original

  TensorView view;  // of `bytes`
  std::vector<uint8_t> bytes;

  // Row `row` as the reference decoder reads it.
  std::vector<float> Row(int64_t row) const {
    const int64_t k = view.shape[1];
    std::vector<float> values(k);
    DequantizeRow(view.type, bytes.data() + row * TensorBytes(view.type, k), k, values.data());
    return values;
  }
};

// Where the f16 scales of a stored block are.
inline std::vector<int> ScaleOffsets(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
      return {0};
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {0, 2};
    case TensorType::kQ2_K:
      return {80, 82};
    case TensorType::kQ3_K:
      return {108};
    case TensorType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

// Weights of the size that layers have: |w| up to about 0.3. With `wild`, scales are any finite f16 of either sign and
// plain floats any finite value.
inline StoredTensor RandomTensor(TensorType type, int64_t n, int64_t k, std::mt19937& rng, bool wild = false) {
  const TensorTypeInfo& info = GetTensorTypeInfo(type);
  StoredTensor tensor;
  tensor.bytes.resize(n * TensorBytes(type, k));
  for (uint8_t& byte : tensor.bytes) byte = static_cast<uint8_t>(rng());
  std::normal_distribution<float> normal(0, 0.05f);
  const auto put16 = [&](size_t offset, uint16_t value) {
    tensor.bytes[offset] = static_cast<uint8_t>(value);
    tensor.bytes[offset + 1] = static_cast<uint8_t>(value >> 8);
  };
  for (size_t block = 0; block < tensor.bytes.size(); block += info.block_bytes) {
    for (int offset : ScaleOffsets(type)) {
      uint16_t scale = static_cast<uint16_t>(rng());
      if (wild) {
        while ((scale >> 10 & 31) == 31) scale = static_cast<uint16_t>(rng());
      } else {
        // d * q spreads over 2^bits steps of about the same total width; a second f16 is m or dmin.
        const bool two_level = info.block_elems == 256;
        const float d = (type == TensorType::kQ8_0 ? 0.002f : 0.02f) / (two_level ? 40.0f : 1.0f);
        const float m = type == TensorType::kQ4_1 || type == TensorType::kQ5_1 ? -8 * d : 8 * d;
        scale = FloatToF16((offset == 0 || offset > 82 || offset == 80 ? d : m) * static_cast<float>(50 + rng() % 50) /
                           100);
      }
      put16(block + offset, scale);
    }
    if (type == TensorType::kMXFP4 && !wild) tensor.bytes[block] = static_cast<uint8_t>(118 + rng() % 5);
    if (type == TensorType::kF8E4M3 && (tensor.bytes[block] & 127) == 127) tensor.bytes[block] = 0;
    if (type == TensorType::kF32) {
      float value = normal(rng);
      if (wild) value *= std::ldexp(1.0f, static_cast<int>(rng() % 200) - 100);
      std::memcpy(&tensor.bytes[block], &value, 4);
    }
    if (type == TensorType::kF16 && (!wild || (tensor.bytes[block + 1] >> 2 & 31) == 31))
      put16(block, FloatToF16(normal(rng)));
    if (type == TensorType::kBF16 && (!wild || (tensor.bytes[block + 1] & 127) == 127))
      put16(block, FloatToBf16(normal(rng)));
  }
  tensor.view = {std::string("test.") + info.name, type, {n, k}, absl::MakeConstSpan(tensor.bytes)};
  return tensor;
}

}  // namespace sluice
