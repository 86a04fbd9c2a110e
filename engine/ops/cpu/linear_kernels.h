// The register-tile kernels, one table per instruction set. Every table gives the same bits (NaN payloads excepted),
// for any number of rows: kernels_portable.cc is the definition.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/isa.h"
#include "engine/ops/cpu/packed_format.h"

namespace sluice {

// What a tile prefetches while it computes: `lines` cache lines per 32 k, from `data` on. Need not be mapped.
struct PrefetchAhead {
  const uint8_t* data = nullptr;
  int lines = 0;
};

// Rows of activations: of type T = ActivationBlock<1>, ActivationBlock<2> or float, `stride_bytes` apart. 4-byte
// aligned.
struct ActivationRows {
  ActivationType type = ActivationType::kF32;
  const uint8_t* data = nullptr;
  size_t stride_bytes = 0;

  ActivationRows From(int64_t row) const { return {type, data + row * stride_bytes, stride_bytes}; }
};

// out[r * 32 + lane] = dot(lane of the panel, activation row r) for r < rows.
// `k`: inner dimension, a multiple of 32 for quantised weights. `out` is 64-byte aligned.
using TileFunction = void (*)(const uint8_t* panel, int64_t k, const uint8_t* activations, size_t stride_bytes,
                              int rows, float* out, PrefetchAhead ahead);

// x[k] -> k / 32 blocks. Each x becomes the nearest multiple of scale = max|x| / range, ties to even (in
// f32: at 15 bits 0.503 steps at most). A block that holds a NaN or an
// infinity gets scale NaN, so every output that reads it is NaN; one whose largest magnitude is below range * 2^-126
// (its scale would be subnormal) counts as zero. REQUIRES: k a multiple of 32.
using QuantizeFunction = void (*)(const float* x, int64_t k, void* blocks);

struct LinearKernels {
  Isa isa;
  // Largest `rows` of a tile, by ActivationType.
  int max_rows[kNumActivationTypes];
  // By ActivationType and the panel's type; nullptr where HasCpuForm is false, and for integer activations with plain
  // floats.
  TileFunction tile[kNumActivationTypes][kNumTensorTypes];
  // By ActivationType; nullptr for kF32.
  QuantizeFunction quantize[kNumActivationTypes];

  int MaxRows(ActivationType type) const { return max_rows[static_cast<int>(type)]; }
  TileFunction Tile(ActivationType activation, TensorType weight) const {
    return tile[static_cast<int>(activation)][static_cast<int>(weight)];
  }
};

inline constexpr int kMaxTileRows = 16;  // of any table

// Lives for ever. REQUIRES: `isa` is among SupportedIsas().
const LinearKernels& GetLinearKernels(Isa isa);

// Bytes of one row of k activations.
size_t ActivationRowBytes(ActivationType type, int64_t k);

}  // namespace sluice
