// nvcuda::wmma for 16 x 16 x 16 tiles of bf16 and f16 with f32 sums. Which lane holds which element is not specified by
// CUDA; here element e of a tile, row by row, is x[e % 8] of lane e / 8.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/cuda_on_cpu/warp_functions.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16);
  static constexpr int num_elements = 8;
  T x[num_elements];
};

template <class Fragment, class T>
void fill_fragment(Fragment& fragment, T value) {
  for (auto& element : fragment.x) element = value;
}

template <class T>
void RequireTile(const T* tile, unsigned stride, const ::sluice::cuda_on_cpu::SourceLine& where) {
  using ::sluice::cuda_on_cpu::Require;
  Require(reinterpret_cast<uintptr_t>(tile) % 32 == 0, "a wmma tile is not aligned to 32 bytes", where);
  Require(stride * sizeof(T) % 16 == 0, "the stride of a wmma tile is not a multiple of 16 bytes", where);
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& fragment, const T* tile, unsigned stride, SLUICE_HERE) {
  RequireTile(tile, stride, here);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned element = ::sluice::cuda_on_cpu::Lane() * 8 + i, row = element / 16, column = element % 16;
    fragment.x[i] = std::is_same_v<Layout, col_major> ? tile[column * stride + row] : tile[row * stride + column];
  }
  __syncwarp(0xffffffffu, here);
}

template <class T>
void store_matrix_sync(T* tile, const fragment<accumulator, 16, 16, 16, T>& fragment, unsigned stride, layout_t layout,
                       SLUICE_HERE) {
  RequireTile(tile, stride, here);
  __syncwarp(0xffffffffu, here);
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned element = ::sluice::cuda_on_cpu::Lane() * 8 + i, row = element / 16, column = element % 16;
    tile[layout == mem_row_major ? row * stride + column : column * stride + row] = fragment.x[i];
  }
}

template <class T>
struct ProductOperand {
  T a[8];
  T b[8];
  float c[8];
};

template <class T>
void ComputeTileProduct(const ::sluice::cuda_on_cpu::WarpOperation& warp) {
  const auto a = [&](unsigned e) { return static_cast<float>(warp.operand<ProductOperand<T>>(e / 8).a[e % 8]); };
  const auto b = [&](unsigned e) { return static_cast<float>(warp.operand<ProductOperand<T>>(e / 8).b[e % 8]); };
  for (unsigned element = 0; element < 256; ++element) {
    const unsigned row = element / 16, column = element % 16;
    float sum = warp.operand<ProductOperand<T>>(element / 8).c[element % 8];
    for (unsigned k = 0; k < 16; ++k) sum += a(row * 16 + k) * b(k * 16 + column);
    warp.result<float[8]>(element / 8)[element % 8] = sum;
  }
}

template <class T, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d, const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b, const fragment<accumulator, 16, 16, 16, float>& c,
              SLUICE_HERE) {
  ProductOperand<T> operand;
  std::memcpy(operand.a, a.x, sizeof(a.x));
  std::memcpy(operand.b, b.x, sizeof(b.x));
  std::memcpy(operand.c, c.x, sizeof(c.x));
  ::sluice::cuda_on_cpu::MeetInWarp(0xffffffffu, &operand, &d.x, &ComputeTileProduct<T>, here);
}

}  // namespace nvcuda::wmma
