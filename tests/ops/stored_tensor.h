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
#include "engine/base/tensor_format.h"
#include "engine/base/tensor_view.h"

namespace sluice {

// Every type that a weight can have.
inline const std::vector<TensorType>& WeightTypes() {
  static const std::vector<TensorType> types = [] {
    std::vector<TensorType> all;
    for (const TensorFormat& row : kTensorFormats) {
      if (row.is_weight) all.push_back(row.type);
    }
    return all;
  }();
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
  std::vector<int> offsets;
  for (const int at : {FormatOf(type).codes.scale_at, FormatOf(type).codes.offset_at}) {
    if (at >= 0) offsets.push_back(at);
  }
  return offsets;
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
        const BlockCodes& codes = FormatOf(type).codes;
        const float d = (type == TensorType::kQ8_0 ? 0.002f : 0.02f) / (codes.two_level ? 40.0f : 1.0f);
        const float m = codes.two_level ? 8 * d : -8 * d;
        scale = FloatToF16((offset == codes.scale_at ? d : m) * static_cast<float>(50 + rng() % 50) / 100);
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
