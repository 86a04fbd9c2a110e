// The input of a linear layer in the form its kernels take: [norm](x), quantised if the weights are.
#pragma once

#include <cstdint>

#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

// Row i is `data + indices[i] * stride`, or `data + i * stride` without indices; normed if there is a norm.
struct RowSource {
  const float* data = nullptr;
  int64_t stride = 0;
  const int32_t* indices = nullptr;
  const NormArgs* norm = nullptr;

  const float* row(int64_t i) const { return data + (indices != nullptr ? indices[i] : i) * stride; }
};

// Many rows are made at once in a parallel region of their own. Few rows are made by each worker for itself when it
// asks for them. Valid until the next Operand of the same context.
class Operand {
 public:
  Operand(CpuContext& context, const RowSource& source, int num_rows, const PackedLinear& weights);
  // Rows that are ready: their owner made them in the form that `TypeFor` names.
  Operand(CpuContext& context, const ActivationRows& ready);

  static ActivationType TypeFor(const CpuContext& context, const PackedLinear& weights) {
    return weights.quantized() ? context.activations : ActivationType::kF32;
  }

  // All rows, for use by `worker` within the region. `first_weights`: what the worker will read next; memory fetches it
  // while the rows are made.
  ActivationRows Rows(int worker, const uint8_t* first_weights) const;

 private:
  void MakeRow(int row, int worker, uint8_t* out) const;

  CpuContext& context_;
  const RowSource source_;
  const int num_rows_ = 0;
  const int64_t k_ = 0;
  ActivationRows shared_;    // data == nullptr: each worker has its own
  size_t worker_bytes_ = 0;  // of a worker's part of context.worker_rows: rows, then one row of floats
  uint64_t stamp_ = 0;
};

}  // namespace sluice
