// One description of the three kinds of products of gemm.h, and the choice among the kernels for them.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/gemm.h"

namespace sluice::cuda {

// A plain product is a batch of one. A grouped one has a matrix an expert.
struct Product {
  GemmArgs gemm;
  int32_t num_batches = 1;
  int64_t x_batch_stride = 0, out_batch_stride = 0;  // elements
  int64_t w_bytes = 0;                               // from one matrix to the next
  int32_t num_experts = 0;                           // 0: not grouped
  const int32_t* expert_starts = nullptr;
  const int32_t* input_rows = nullptr;
  const float* input_scale = nullptr;
};

Product ToProduct(const GemmArgs& args);
Product ToProduct(const BatchedGemmArgs& args);
Product ToProduct(const GroupedGemmArgs& args);

// All give the same bits; with weights of kF32 there is but one.
enum class GemmKernel : uint8_t { kFastest, kSkinny, kTiled };

void LaunchProduct(const Product& product, GemmKernel kernel, Stream stream);

// Of a weight format's struct in weight_tiles.cuh; each format's kernels are compiled in a .cu of their own. `tokens`:
// places per matrix to be expected; a good guess saves time only.
template <class F>
void LaunchSkinny(const Product& product, int32_t tokens, Stream stream);
template <class F>
void LaunchTiled(const Product& product, int32_t tokens, Stream stream);
void LaunchF32(const Product& product, Stream stream);

}  // namespace sluice::cuda
