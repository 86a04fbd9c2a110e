// Rows of a table by token id or position.
#pragma once

#include "engine/ops/cuda/kernels/types.h"
#include "engine/ops/cuda/kernels/weight_matrix.h"

namespace sluice::cuda {

// x[r] = scale * table[id], every row of x is written; an id outside [0, table.n) gives NaN (arguments are checked long
// before: this keeps a mistake from passing silently). accumulate: x[r] += instead. The id is ids[r], or
// drawn[sources[r]] where that is not -1.
struct EmbedArgs {
  int32_t num_rows = 0;
  const int32_t* ids = nullptr;      // [num_rows]
  const int32_t* sources = nullptr;  // [num_rows]; null: all -1
  const int32_t* drawn = nullptr;
  WeightMatrix table = {};  // [vocab, d], packed as for LaunchGemm
  float scale = 1;
  bool accumulate = false;
  float* x = nullptr;  // [num_rows, d]
};
void LaunchEmbed(const EmbedArgs& args, Stream stream);

}  // namespace sluice::cuda
