// The kernels in plain C++: the definition of the result. Every other kernel set gives these bits.
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/ops/cpu/linear_kernel_tables.h"
#include "engine/ops/cpu/packed_codec.h"

namespace sluice {
namespace {

template <int Digits>
int Value(const ActivationBlock<Digits>& block, int k) {
  return Digits == 2 ? 128 * block.digits[0][k] + block.digits[Digits - 1][k] : block.digits[0][k];
}

// Blocks in ascending order; in each the exact integer dot product of every 16 or 32 k, one fused multiply-add for
// each, and one for the offset.
template <TensorType Packed, int Digits>
void IntegerTile(const uint8_t* panel, int64_t k, const uint8_t* activations, size_t stride_bytes, int rows, float* out,
                 PrefetchAhead) {
  constexpr PackedFormat kFormat = PackedFormatOf(Packed);
  constexpr int kSubLength = kBlock / kFormat.scales_per_block;
  std::fill(out, out + rows * kPanelRows, 0.0f);
  for (int64_t b = 0; b < k / kBlock; ++b) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const LaneBlock w = ReadLaneBlock(Packed, panel, b, lane);
      for (int r = 0; r < rows; ++r) {
        ActivationBlock<Digits> x;
        std::memcpy(&x, activations + r * stride_bytes + b * sizeof(x), sizeof(x));
        float& sum = out[r * kPanelRows + lane];
        for (int sub = 0; sub < kFormat.scales_per_block; ++sub) {
          int32_t dot = 0;
          for (int i = sub * kSubLength; i < (sub + 1) * kSubLength; ++i)
            dot += (w.code[i] - kFormat.zero) * Value(x, i);
          sum = std::fma(static_cast<float>(dot), w.scale[sub] * x.scale, sum);
        }
        if (kFormat.affine) sum = std::fma(w.offset, x.scaled_sum, sum);
      }
    }
  }
}

// One fused multiply-add for each k, ascending.
template <TensorType Packed>
void FloatTile(const uint8_t* panel, int64_t k, const uint8_t* activations, size_t stride_bytes, int rows, float* out,
               PrefetchAhead) {
  constexpr PackedFormat kFormat = PackedFormatOf(Packed);
  std::fill(out, out + rows * kPanelRows, 0.0f);
  for (int lane = 0; lane < kPanelRows; ++lane) {
    LaneBlock block;
    for (int64_t i = 0; i < k; ++i) {
      if (kFormat.quantized() && i % kBlock == 0) block = ReadLaneBlock(Packed, panel, i / kBlock, lane);
      const float w = kFormat.quantized() ? LaneBlockValue(kFormat, block, static_cast<int>(i % kBlock))
                                          : ReadLaneFloat(Packed, panel, i, lane);
      for (int r = 0; r < rows; ++r) {
        float x;
        std::memcpy(&x, activations + r * stride_bytes + i * sizeof(x), sizeof(x));
        float& sum = out[r * kPanelRows + lane];
        sum = std::fma(w, x, sum);
      }
    }
  }
}

template <int Digits>
ActivationBlock<Digits> QuantizeBlock(const float* x) {
  constexpr float kRange = kActivationRange<Digits>;
  ActivationBlock<Digits> block = {};
  // As integers, magnitudes are ordered like floats, and NaN is above infinity above all numbers.
  uint32_t largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  const float magnitude = std::bit_cast<float>(largest);
  if (largest >= 0x7f800000u) {
    block.scale = block.scaled_sum = std::numeric_limits<float>::quiet_NaN();
    return block;
  }
  if (magnitude < kRange * FLT_MIN) return block;
  const float inverse = kRange / magnitude;
  int sum = 0;
  for (int i = 0; i < kBlock; ++i) {
    const int q = static_cast<int>(std::lrint(x[i] * inverse));  // ties to even
    const int high = Digits == 2 ? (q + 64) >> 7 : q;
    block.digits[0][i] = static_cast<int8_t>(high);
    if (Digits == 2) block.digits[Digits - 1][i] = static_cast<int8_t>(q - 128 * high);
    sum += q;
    if (i < kBlock / 2) block.neg_sum_low -= q;
  }
  block.scale = magnitude / kRange;
  block.scaled_sum = block.scale * static_cast<float>(sum);
  block.neg_sum = -sum;
  return block;
}

template <int Digits>
void Quantize(const float* x, int64_t k, void* blocks) {
  auto* out = static_cast<ActivationBlock<Digits>*>(blocks);
  for (int64_t b = 0; b < k / kBlock; ++b) out[b] = QuantizeBlock<Digits>(x + b * kBlock);
}

struct Tiles {
  template <TensorType type, int digits>
  static constexpr TileFunction kInteger = IntegerTile<type, digits>;
  template <TensorType type>
  static constexpr TileFunction kFloat = FloatTile<type>;
};

}  // namespace

constexpr LinearKernels kPortableKernels = WithTiles<Tiles>({.isa = Isa::kPortable,
                                                             .max_rows = {kMaxTileRows, kMaxTileRows, kMaxTileRows},
                                                             .tile = {},
                                                             .quantize = {Quantize<1>, Quantize<2>, nullptr}});

}  // namespace sluice
