// Packed weight matrices as plain ones, for products by a library (../gemm_library.h).
#pragma once

#include "engine/ops/cuda/kernels/types.h"
#include "engine/ops/cuda/kernels/weight_matrix.h"

namespace sluice::cuda {

// plain[r][c], bf16 [n, k], rows in the file's order (gate, then up): each weight as engine/base/dequantize.h gives it,
// then rounded to the nearest bf16. REQUIRES: not kF32; k a multiple of 8; `plain` 8-byte aligned.
void LaunchUnpack(const WeightMatrix& w, void* plain, Stream stream);

}  // namespace sluice::cuda
