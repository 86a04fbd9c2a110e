// Norms over rows, and the residual additions that go with them. One block a row; reduction order fixed by d alone.
// d is 1 to 20480. What is 16-byte aligned with d (and a stride) a multiple of 4 is read 16 bytes at a time; the bits
// are the same either way.
#pragma once

#include <cstdint>

#include "engine/base/layer_types.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

struct NormWeightsView {
  NormParams params;
  const float* weight = nullptr;  // [d] or null: ones
  const float* bias = nullptr;    // [d] or null: zeros; kLayer only
};

// y[i] = norm(x[rows[i]]); i < num_rows. Where rows[i] is negative nothing is read or written.
struct NormArgs {
  int32_t num_rows = 0;
  int32_t d = 0;
  const float* x = nullptr;       // [., d]
  const int32_t* rows = nullptr;  // [num_rows] or null: row i is row i
  NormWeightsView norm = {};
  void* y = nullptr;  // [num_rows, d] or null
  Element y_element = Element::kBF16;
  float* y_f32 = nullptr;  // [num_rows, d] or null: the same in f32 (routers read it)
};
void LaunchNorm(const NormArgs& args, Stream stream);

// Without a norm: y = x, rounded.
void LaunchConvert(const float* x, int64_t count, void* y, Element y_element, Stream stream);

// x[i] += [norm](y[i]): what stands between a sublayer and the residual stream.
struct AddNormedArgs {
  int32_t num_rows = 0;
  int32_t d = 0;
  const float* y = nullptr;  // [num_rows, d]
  bool has_norm = false;
  NormWeightsView norm = {};
  float* x = nullptr;  // [num_rows, d] in, out
};
void LaunchAddNormed(const AddNormedArgs& args, Stream stream);

// Norm of a range of columns of each row, f32 -> Element: the latents of MLA. y[i] = norm(x[i, 0 .. d)).
struct NormColumnsArgs {
  int32_t num_rows = 0;
  int32_t d = 0;
  const float* x = nullptr;  // first column of row 0
  int64_t x_stride = 0;
  NormWeightsView norm = {};
  void* y = nullptr;  // [num_rows, d]
  Element y_element = Element::kBF16;
};
void LaunchNormColumns(const NormColumnsArgs& args, Stream stream);

}  // namespace sluice::cuda
