// What follows a product that a library has computed in f32 (../gemm_library.h).
#pragma once

#include "engine/ops/cuda/kernels/gemm.h"

namespace sluice::cuda {

// Ends LaunchGemm(gemm) where y [m, n], rows y_stride apart, holds x * W^T with W's rows in the file's order: adds the
// bias, then the epilogue. Of kAccumulate out holds the sum already and is y: the bias is added. y may be out wherever
// they have the same shape. REQUIRES: n a multiple of 8; rows of y, out and the bias begin at four of
// their elements.
void LaunchFinishProduct(const GemmArgs& gemm, const float* y, int64_t y_stride, Stream stream);

}  // namespace sluice::cuda
