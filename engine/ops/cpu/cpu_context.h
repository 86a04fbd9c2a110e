// What the operations of one CpuOps share: threads, kernels, the step's arrays and scratch memory; and the CPU's
// versions of the opaque types of ops.h.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/huge_page_arena.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/float_kernels.h"
#include "engine/ops/cpu/linear_kernels.h"
#include "engine/ops/cpu/packed_linear.h"
#include "engine/ops/ops.h"

namespace sluice {

class CpuLinear : public LinearWeights {
 public:
  explicit CpuLinear(PackedLinear packed) : packed_(std::move(packed)) {}
  int64_t out_features() const override { return packed_.num_rows(); }
  int64_t in_features() const override { return packed_.k(); }
  int64_t resident_bytes() const override { return packed_.bytes(); }
  const PackedLinear& packed() const { return packed_; }

 private:
  PackedLinear packed_;
};

class CpuVector : public VectorWeights {
 public:
  explicit CpuVector(std::span<const float> values) : values_(values.begin(), values.end()) {}
  int64_t size() const override { return static_cast<int64_t>(values_.size()); }
  const float* data() const { return values_.data(); }

 private:
  std::vector<float> values_;
};

// f32 rows, each starting on a cache line.
class CpuActivations : public Activations {
 public:
  CpuActivations(std::shared_ptr<uint8_t> memory, int64_t rows, int64_t cols)
      : memory_(std::move(memory)), rows_(rows), cols_(cols) {}
  static int64_t Stride(int64_t cols) { return (cols + 15) / 16 * 16; }

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  int64_t stride() const { return Stride(cols_); }
  float* row(int64_t r) { return reinterpret_cast<float*>(memory_.get()) + r * stride(); }
  const float* row(int64_t r) const { return reinterpret_cast<const float*>(memory_.get()) + r * stride(); }

 private:
  std::shared_ptr<uint8_t> memory_;
  int64_t rows_, cols_;
};

inline const PackedLinear& PackedOf(const LinearWeights* w) { return static_cast<const CpuLinear*>(w)->packed(); }
inline const float* DataOf(const VectorWeights* v) {
  return v != nullptr ? static_cast<const CpuVector*>(v)->data() : nullptr;
}
inline CpuActivations& RowsOf(Activations* a) { return static_cast<CpuActivations&>(*a); }
inline const CpuActivations& RowsOf(const Activations* a) { return static_cast<const CpuActivations&>(*a); }

struct CpuContext {
  CpuContext(int num_threads, Isa isa, ActivationType activations)
      : pool(num_threads),
        linear(GetLinearKernels(isa)),
        floats(GetFloatKernels(isa)),
        activations(activations),
        operand_stamps(static_cast<size_t>(num_threads)) {}

  int num_tokens() const { return static_cast<int>(batch.token_ids.size()); }
  int num_threads() const { return pool.num_threads(); }
  void Norm(const NormArgs& norm, const float* x, int64_t n, float* y) const {
    floats.norm(norm.params, x, n, DataOf(norm.weight), DataOf(norm.bias), y);
  }

  ThreadPool pool;
  HugePageArena arena;
  const LinearKernels& linear;
  const FloatKernels& floats;
  const ActivationType activations;  // for block-quantised weights

  BatchView batch;
  uint64_t step = 0;       // counts BeginStep
  int32_t max_tokens = 0;  // of a step, from Reserve: scratch is sized for it when it is first used
  bool expands_latents = false;  // StepLimits

  // Scratch. What holds rows has room for max_tokens of them.
  AlignedBuffer operand_rows;    // operand.h
  AlignedBuffer worker_rows;     // operand.h
  AlignedBuffer worker_scratch;  // of the running operation
  struct alignas(64) Stamp {
    uint64_t operand = 0;
  };
  std::vector<Stamp> operand_stamps;  // [worker] the operand that worker_rows holds
  uint64_t num_operands = 0;
  AlignedBuffer wide_rows;    // [rows][out] results of a linear layer that a second region finishes
  AlignedBuffer hidden_rows;  // [rows] input of a feed-forward layer's second matrix
};

// Rows are few enough that every worker makes its own copy of an operand, which costs less than a barrier.
inline constexpr int kFewRows = 4;

// Calls fn(row, worker) for rows [0, num_rows), on the caller when there are few.
template <class Fn>
void ForRows(CpuContext& context, int num_rows, Fn&& fn) {
  constexpr int kRowsPerChunk = 4;
  if (num_rows <= kFewRows) {
    for (int r = 0; r < num_rows; ++r) fn(r, 0);
    return;
  }
  context.pool.ParallelFor(static_cast<uint32_t>((num_rows + kRowsPerChunk - 1) / kRowsPerChunk),
                           [&](uint32_t chunk, int worker) {
                             const int first = static_cast<int>(chunk) * kRowsPerChunk;
                             for (int r = first; r < num_rows && r < first + kRowsPerChunk; ++r) fn(r, worker);
                           });
}

}  // namespace sluice
