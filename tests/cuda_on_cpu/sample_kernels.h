// Four small kernels of the kinds that a model needs. They show how a kernel is written and tested for GPU and CPU, and
// carry the seeded bugs of mutants.toml. Pointers are to device memory; bf16 is given as its bits.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace sluice::cuda_testing {

using Stream = CUstream_st*;

// y[i] = x[i] / sqrt(mean of x[i]^2), rows of n (a multiple of 8).
void LaunchUnitRows(uint16_t* y, const uint16_t* x, int rows, int n, Stream stream);

// y[s] = the mean over sequence s's length[s] tokens (0: zeros) of the 64 values that lie in its pages of 16 tokens.
struct PagedMeanArgs {
  const float* pages;    // [., 16, 64]
  const int32_t* table;  // [num_seqs, max_pages]; entries beyond the length are not read
  const int32_t* length;
  int32_t num_seqs = 0, max_pages = 0;
  int32_t tokens_per_split = 0;
  float* partials;  // [num_seqs, num_splits, 64]
  int32_t num_splits = 0;
  float* y;  // [num_seqs, 64]
};
void LaunchPagedMean(const PagedMeanArgs& args, Stream stream);

// c[m, n] = a[m, k] b[n, k]^T in f32; k a multiple of 32, rows aligned to 16 bytes. By ldmatrix and mma.
void LaunchProductOfRows(float* c, const uint16_t* a, const uint16_t* b, int m, int n, int k, Stream stream);
// The same by wmma; m and n multiples of 32.
void LaunchProductByWmma(float* c, const uint16_t* a, const uint16_t* b, int m, int n, int k, Stream stream);

}  // namespace sluice::cuda_testing
