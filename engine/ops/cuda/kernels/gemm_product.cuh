// What the kernels behind gemm.h have in common: the places a block works on, and the epilogue.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/gemm_product.h"
#include "engine/ops/cuda/kernels/weight_layout.h"

namespace sluice::cuda {

// Consecutive places (rows of out, and of x unless input_rows says otherwise) that share a matrix.
struct Places {
  int32_t matrix = 0;
  int32_t batch = 0;
  int32_t first = 0;
  int32_t count = 0;  // 0: nothing to do
};

// Blocks that CoverPlaces<tile> needs in x. Of experts only the number is known here: min(places, experts) of them have
// places, and each wastes less than a tile.
inline int32_t PlaceTiles(const Product& product, int32_t tile) {
  const int32_t m = product.gemm.m;
  const int32_t visited = product.num_experts == 0 ? 1 : m < product.num_experts ? m : product.num_experts;
  return static_cast<int32_t>((m + int64_t{visited} * (tile - 1)) / tile);
}

// Of tiles of at most `tile` places, none of which spans two experts, the one with index blockIdx.x, in batch
// blockIdx.z. The result is the same in all threads. All lanes of a warp call.
template <int tile>
__device__ __forceinline__ Places CoverPlaces(const Product& product) {
  const int32_t index = static_cast<int32_t>(blockIdx.x);
  if (product.num_experts == 0) {
    const int32_t first = index * tile, batch = static_cast<int32_t>(blockIdx.z);
    return {batch, batch, first, min(tile, product.gemm.m - first)};
  }
  constexpr unsigned kAll = 0xffffffffu;
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
  int32_t tiles_before = 0;
  for (int32_t base = 0; base < product.num_experts; base += 32) {
    const int32_t expert = min(base + lane, product.num_experts - 1);
    const int32_t start = product.expert_starts[expert];
    const int32_t count = base + lane < product.num_experts ? product.expert_starts[expert + 1] - start : 0;
    const int32_t tiles = (count + tile - 1) / tile;
    int32_t upto = tiles;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t other = __shfl_up_sync(kAll, upto, distance);
      if (lane >= distance) upto += other;
    }
    const unsigned beyond = __ballot_sync(kAll, tiles_before + upto > index);
    if (beyond != 0) {
      const int owner = __ffs(static_cast<int>(beyond)) - 1;
      const int32_t skipped = (index - tiles_before - __shfl_sync(kAll, upto - tiles, owner)) * tile;
      return {base + owner, 0, __shfl_sync(kAll, start, owner) + skipped,
              min(tile, __shfl_sync(kAll, count, owner) - skipped)};
    }
    tiles_before += __shfl_sync(kAll, upto, 31);
  }
  return {};
}

__device__ __forceinline__ const void* XRow(const Product& product, const Places& places, int32_t place) {
  const int32_t row = product.input_rows == nullptr ? place : product.input_rows[place];
  const int64_t at = places.batch * product.x_batch_stride + row * product.gemm.x_stride;
  return static_cast<const std::byte*>(product.gemm.x) + at * ElementBytes(product.gemm.x_element);
}

__device__ __forceinline__ const std::byte* Matrix(const Product& product, const Places& places) {
  return static_cast<const std::byte*>(product.gemm.w.data) + places.matrix * product.w_bytes;
}

__device__ __forceinline__ float Activate(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1.0f + expf(-x));
    case ActivationKind::kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ActivationKind::kGeluErf:
      return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case ActivationKind::kSwigluOai:
      break;
  }
  return x;
}

// Comparisons that keep a NaN.
__device__ __forceinline__ float ActivateGated(const GemmArgs& gemm, float gate, float up) {
  if (gemm.activation != ActivationKind::kSwigluOai) return Activate(gemm.activation, gate) * up;
  gate = gate > gemm.limit ? gemm.limit : gate;
  up = up > gemm.limit ? gemm.limit : up < -gemm.limit ? -gemm.limit : up;
  return gate / (1.0f + expf(-gemm.alpha * gate)) * (up + 1.0f);
}

// Ends the products `low` and `high` of one place with rows g and g + 8 (g < 8) of a row tile.
__device__ __forceinline__ void Finish(const Product& product, const Places& places, int32_t place, int32_t row_tile,
                                       int g, float low, float high) {
  const GemmArgs& gemm = product.gemm;
  const int32_t n = gemm.w.n;
  const int32_t low_row = UnpackedRow(row_tile, g, n, gemm.w.gated);
  const int32_t high_row = UnpackedRow(row_tile, g + 8, n, gemm.w.gated);
  if (low_row < 0) return;
  if (product.input_scale != nullptr) {
    low *= product.input_scale[place];
    high *= product.input_scale[place];
  }
  if (gemm.bias != nullptr) {
    const float* bias = gemm.bias + (product.num_experts == 0 ? 0 : int64_t{places.matrix} * n);
    low += bias[low_row];
    if (high_row >= 0) high += bias[high_row];
  }
  const int64_t row = places.batch * product.out_batch_stride + place * gemm.out_stride;
  if (gemm.epilogue == Epilogue::kGated) {
    StoreElement(gemm.out, gemm.out_element, row + low_row, ActivateGated(gemm, low, high));
    return;
  }
  if (gemm.epilogue == Epilogue::kAccumulate) {
    float* out = static_cast<float*>(gemm.out) + row;
    out[low_row] += low;
    if (high_row >= 0) out[high_row] += high;
    return;
  }
  if (gemm.activate) {
    low = Activate(gemm.activation, low);
    high = Activate(gemm.activation, high);
  }
  StoreElement(gemm.out, gemm.out_element, row + low_row, low);
  if (high_row >= 0) StoreElement(gemm.out, gemm.out_element, row + high_row, high);
}

}  // namespace sluice::cuda
