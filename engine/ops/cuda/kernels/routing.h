// Which experts the rows of a step visit, and the order in which the grouped products take them.
#pragma once

#include "engine/base/layer_types.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

// A place is a (row, choice) pair; places are sorted by expert, within an expert by row.
struct RouteArrays {
  int32_t* choices = nullptr;        // [num_rows, num_experts_per_token] expert, ascending
  float* weights = nullptr;          // [num_rows, num_experts_per_token]
  int32_t* expert_starts = nullptr;  // [num_experts + 1] first place of each expert
  int32_t* input_rows = nullptr;     // [num_rows * num_experts_per_token] row of each place
  float* place_weights = nullptr;    // the same order: its weight
  int32_t* row_places = nullptr;     // [num_rows, num_experts_per_token] place of each choice; -1 for padding
};

// As ChooseExperts of engine/ops/moe_routing.h, ties, NaN and all; f64 where it uses f64. Padding rows choose no
// expert: their choices are -1, their weights 0, and they have no place, so that there are expert_starts[num_experts]
// places and what lies after them in input_rows and place_weights is left as it was.
struct RouteArgs {
  int32_t num_rows = 0;
  const float* logits = nullptr;           // [num_rows, num_experts]
  const float* selection_bias = nullptr;   // [num_experts] or null
  const int32_t* row_sequences = nullptr;  // [num_rows] -1 for padding; null: no row is
  MoeRouting routing = {};                 // num_experts up to 1024, num_experts_per_token up to 32
  RouteArrays out = {};
};
void LaunchRoute(const RouteArgs& args, Stream stream);

// sum[r] = (sum over the choices of row r, ascending, of weight * y[place]) + shared[r]; choices without a place add
// nothing.
struct CombineArgs {
  int32_t num_rows = 0, num_experts_per_token = 0, d = 0;
  const float* y = nullptr;        // [places, d]
  const float* weights = nullptr;  // [num_rows, num_experts_per_token] or null: ones
  const int32_t* row_places = nullptr;
  const float* shared = nullptr;  // [num_rows, d] or null
  float* sum = nullptr;           // [num_rows, d]
};
void LaunchCombine(const CombineArgs& args, Stream stream);

}  // namespace sluice::cuda
