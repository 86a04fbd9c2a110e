// The CPU's side of engine/ops/cuda/kernels/ptx.h, which says what each does.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>

#include "tests/cuda_on_cpu/async_copy.h"
#include "tests/cuda_on_cpu/block_functions.h"
#include "tests/cuda_on_cpu/matrix.h"

namespace sluice::ptx {

inline void cp_async16(void* shared, const void* global, bool valid = true, SLUICE_HERE) {
  cuda_on_cpu::BeginAsyncCopy(shared, global, !valid, here);
}
inline void cp_async_commit() { cuda_on_cpu::CommitAsyncCopies(); }
template <int N>
void cp_async_wait() {
  cuda_on_cpu::WaitForAsyncCopies(N);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, SLUICE_HERE) {
  cuda_on_cpu::LoadMatrices<4, false>(r, row, here);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, SLUICE_HERE) {
  cuda_on_cpu::LoadMatrices<4, true>(r, row, here);
}

inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SLUICE_HERE) {
  cuda_on_cpu::MultiplyMatrices<cuda_on_cpu::MatrixElement::kBf16>(d, a, b, here);
}
inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SLUICE_HERE) {
  cuda_on_cpu::MultiplyMatrices<cuda_on_cpu::MatrixElement::kF16>(d, a, b, here);
}

inline uint4 load_streaming(const void* address, SLUICE_HERE) {
  cuda_on_cpu::Require(reinterpret_cast<uintptr_t>(address) % 16 == 0,
                       "the address of load_streaming is not aligned to 16 bytes", here);
  return *static_cast<const uint4*>(address);
}

template <int table>
uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r = 0;
  for (int i = 0; i < 8; ++i)
    if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return r;
}

inline float exp2(float x) { return std::exp2(x); }

inline void barrier_sync(int id, int threads, SLUICE_HERE) {
  cuda_on_cpu::MeetAtBarrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), false, here);
}

inline void griddepcontrol_wait() {}
inline void griddepcontrol_launch_dependents() {}

}  // namespace sluice::ptx
