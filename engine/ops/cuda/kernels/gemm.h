// Products with weight matrices: out[m, n] = x[m, k] * W[n, k]^T, and what models do with the result right away.
//
// Every row of `out` has the same bits whatever m is and whichever kernel runs: for few rows (skinny, weights straight
// from global memory into mma fragments) and for many (tiles through shared memory) K is cut into the same slices, each
// summed by the same mma instructions in the same order, the slices added in ascending order (gemm_step.cuh). Weights
// are exact in every format, sums are f32 (weight_tiles.cuh). n is at most 2^20 - 16.
#pragma once

#include <cstdint>

#include "engine/base/layer_types.h"
#include "engine/ops/cuda/kernels/types.h"
#include "engine/ops/cuda/kernels/weight_matrix.h"

namespace sluice::cuda {

enum class Epilogue : uint8_t {
  kStore,       // out [m, n] = y
  kAccumulate,  // out [m, n] f32 += y
  kGated,       // out [m, n / 2] = act(gate) * up; W in the row order of WeightMatrix::gated
};

struct GemmArgs {
  int32_t m = 0;                       // any, 0 included
  const void* x = nullptr;             // [m, x_stride], 16-byte aligned rows
  Element x_element = Element::kBF16;  // kF32 only with weights of kF32, and the other way round
  int64_t x_stride = 0;                // elements between rows, >= k
  WeightMatrix w;
  const float* bias = nullptr;  // [n] in the order of the *unpacked* rows (gate, then up); null: none
  Epilogue epilogue = Epilogue::kStore;
  ActivationKind activation = ActivationKind::kSilu;  // kGated, and kStore with `activate`
  float alpha = 1.702f, limit = 7.0f;                 // kSwigluOai, as DenseFfnArgs
  bool activate = false;                              // kStore: out = act(y), for feed-forwards without a gate
  void* out = nullptr;
  Element out_element = Element::kBF16;  // of kStore and kGated
  int64_t out_stride = 0;                // elements between rows
};

// y = x * W^T + bias, then the epilogue.
void LaunchGemm(const GemmArgs& args, Stream stream);

// The same for `num_batches` independent products whose operands lie at fixed distances (MLA: one per head). kStore
// only.
struct BatchedGemmArgs {
  GemmArgs each;  // of batch 0
  int32_t num_batches = 0;
  int64_t x_batch_stride = 0;    // elements
  int64_t w_batch_bytes = 0;     // from one packed matrix to the next
  int64_t out_batch_stride = 0;  // elements
};
void LaunchBatchedGemm(const BatchedGemmArgs& args, Stream stream);

// Products of a mixture of experts: place p of the step's sorted (row, choice) pairs belongs to the expert e with
// expert_starts[e] <= p < expert_starts[e + 1]; its input is row p of x, or row input_rows[p] where that is given.
//   y[p] = input_scale[p] * x[...] * W_e^T + bias_e, then the epilogue into row p of out.
// Bits of a place depend on its input and expert only.
struct GroupedGemmArgs {
  GemmArgs each;  // m: places in all; w: of expert 0; bias [num_experts, n]
  int32_t num_experts = 0;
  int64_t w_expert_bytes = 0;              // from one packed matrix to the next
  const int32_t* expert_starts = nullptr;  // [num_experts + 1]
  const int32_t* input_rows = nullptr;     // [m] or null
  const float* input_scale = nullptr;      // [m] or null: 1; scales the row's product before the bias
};
void LaunchGroupedGemm(const GroupedGemmArgs& args, Stream stream);

}  // namespace sluice::cuda
