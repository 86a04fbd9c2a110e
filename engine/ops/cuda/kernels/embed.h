// Rows of a table by token id or position.
#pragma once

#include "engine/ops/cuda/kernels/types.h"
#include "engine/ops/cuda/kernels/weight_format.h"

namespace sluice::cuda {

// x[r] = scale * table[ids[r]], every row of x is written; an id outside [0, table.n) gives NaN (arguments are checked
// long before: this keeps a mistake from passing silently). accumulate: x[r] += instead.
struct EmbedArgs {
  int32_t num_rows = 0;
  const int32_t* ids = nullptr;  // [num_rows]
  WeightMatrix table = {};       // [vocab, d], packed as for LaunchGemm
  float scale = 1;
  bool accumulate = false;
  float* x = nullptr;  // [num_rows, d]
};
void LaunchEmbed(const EmbedArgs& args, Stream stream);

}  // namespace sluice::cuda
