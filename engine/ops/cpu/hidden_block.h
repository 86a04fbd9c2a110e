// The first half of a feed-forward network: act(gate * h) * (up * h), or act(up * h) without a gate, in blocks of
// hidden values and in the form that the kernels of the second half take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/cpu/cpu_context.h"
#include "engine/ops/cpu/linear.h"

namespace sluice {

inline constexpr int kHiddenBlock = kBlock;  // one block of the quantised input of the second half

// Floats of scratch that a worker needs: gates and ups of a row block.
inline constexpr size_t kHiddenScratch = size_t{2} * kRowBlock * kHiddenBlock;

struct HiddenLayer {
  const PackedLinear* weights = nullptr;  // kGateUp if gated
  const float* bias = nullptr;            // [gate|up]; may be null
  int64_t size = 0;                       // hidden values
  bool gated = true;
  ActivationKind activation = ActivationKind::kSilu;
  float alpha = 0, limit = 0;  // kSwigluOai

  int64_t num_blocks() const { return (size + kHiddenBlock - 1) / kHiddenBlock; }
  int values_per_panel() const { return gated ? kPanelRows / 2 : kPanelRows; }
  int64_t first_panel(int64_t block) const { return block * kHiddenBlock / values_per_panel(); }
};

// Rows to be written: ActivationRows whose data is ours.
struct HiddenRows {
  ActivationType type = ActivationType::kF32;
  uint8_t* data = nullptr;
  size_t stride_bytes = 0;

  HiddenRows From(int64_t row) const { return {type, data + static_cast<size_t>(row) * stride_bytes, stride_bytes}; }
  operator ActivationRows() const { return {type, data, stride_bytes}; }
};

// Bytes from one row of k activations to the next: every row starts on a cache line.
inline size_t RowStride(ActivationType type, int64_t k) { return (ActivationRowBytes(type, k) + 63) / 64 * 64; }

// Makes block `block` of rows [0, num_rows) of `in` and stores it in the same rows of `out`.
// REQUIRES: num_rows <= kRowBlock; `scratch` holds kHiddenScratch floats.
void MakeHiddenBlock(const CpuContext& context, const HiddenLayer& layer, int64_t block, const ActivationRows& in,
                     int num_rows, const HiddenRows& out, float* scratch);

}  // namespace sluice
