// Products of many rows with plain weight matrices by a vendor's library. On sm_90 those need wgmma to come near the
// tensor cores' rate; our own kernels (kernels/gemm.h), made for few rows, reach half of it.
//
// A row's bits depend on nothing but the row and the matrix, however many rows a product has:
// - For a shape (n, k) one algorithm is chosen, once, for kMaxRows rows, and carries out every product of that shape.
// - It parts no sum over k among blocks: no split-K, no reduction, and no workspace, so that there is no memory through
//   which blocks could add partial sums. An element of the result is summed by one block, along k, in the order that
//   the algorithm's tile fixes; m decides only how many tiles there are.
// No library promises that in words, so a test must show it on each kind of GPU (tests/cuda/gemm_library_test.cc).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice {

// out = x * w^T, or out += x * w^T: bf16 in, sums and result in f32. All rows begin at multiples of 16 bytes.
struct LibraryProduct {
  int32_t m = 0, n = 0, k = 0;  // 1 <= m <= GemmLibrary::kMaxRows; n and k multiples of 8
  const void* x = nullptr;      // [m, x_stride] bf16
  int64_t x_stride = 0;         // elements, >= k
  const void* w = nullptr;      // [n, k] bf16
  float* out = nullptr;         // [m, out_stride]
  int64_t out_stride = 0;       // elements, >= n
  bool accumulate = false;
};

// One caller thread at a time.
class GemmLibrary {
 public:
  // A product with more rows is several.
  static constexpr int32_t kMaxRows = 2048;

  virtual ~GemmLibrary() = default;

  virtual std::string Description() const = 0;  // "cuBLASLt 13.0.2"

  // Chooses the algorithm for a shape, unless that was done before. UNIMPLEMENTED: the library has none that keeps a
  // row's bits.
  virtual absl::Status Prepare(int32_t n, int32_t k) = 0;
  // Of shapes.
  virtual int64_t num_prepared() const = 0;

  // Enqueues a product; searches nothing, allocates nothing. REQUIRES: Prepare(product.n, product.k). INTERNAL: the
  // library refused it.
  virtual absl::Status Multiply(const LibraryProduct& product, cuda::Stream stream) = 0;
};

}  // namespace sluice
