// Instructions that CUDA C++ has no function for, each a thin wrapper named after it. nvcc's side is here; the CPU's,
// with the same signatures, in tests/cuda_on_cpu/ptx_on_cpu.h, which also checks alignment and address spaces.
//
// clang-format off
//   cp_async16(shared, global, valid)    begins a copy of 16 bytes, both aligned to 16; zeros where not `valid` (then
//                                        `global` is not read, but must be an address). Nothing may touch the
//                                        destination
//   cp_async_commit()                    closes a group of the thread's copies; an empty group counts too
//   cp_async_wait<N>()                   waits until at most the N youngest groups of this thread are not done. Other
//                                        threads see the copies after a barrier that follows
//   ldmatrix_x4[_trans](r, row)          lane 8 i + j gives the address of row j of matrix i (8 x 8, 16-bit); every lane
//                                        gets elements 2 (lane % 4) and the next of row lane / 4 of each (_trans: of
//                                        that column)
//   mma_m16n8k16_bf16|f16(d, a, b)       d[16, 8] += a[16, 16] b[16, 8], f32 sums; with g = lane / 4, q = lane % 4:
//                                        a: (g, 2q), (g + 8, 2q), (g, 2q + 8), (g + 8, 2q + 8), each with its next k;
//                                        b: (k 2q, column g), (k 2q + 8, column g), each with its next k;
//                                        d: (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
//   load_streaming(address)              16 bytes, aligned, of memory that no one writes during the kernel; not kept in L1
//   lop3<table>(a, b, c)                 any bitwise function of three words: table = f(0xf0, 0xcc, 0xaa)
//   exp2(x)                              2^x, approximately (2 ulp); subnormal results become 0; exp2(-inf) = 0
//   barrier_sync(id, threads)            a barrier of `threads` threads (a multiple of 32), id 1 to 15
//   griddepcontrol_wait()                until the kernel ahead in the stream has ended and its writes are seen
//   griddepcontrol_launch_dependents()   lets the next kernel of the stream begin, if launched dependent
// clang-format on
#pragma once

#include "engine/ops/cuda/kernels/cuda_language.h"

#if defined(__CUDACC__)

namespace sluice::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void cp_async16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint4 load_streaming(const void* address) {
  uint4 r;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(address));
  return r;
}

template <int table>
__device__ __forceinline__ uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(table));
  return r;
}

__device__ __forceinline__ float exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// sm_90 has both; before it a launch is never dependent and there is nothing to wait for.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace sluice::ptx

#else

#include "tests/cuda_on_cpu/ptx_on_cpu.h"

#endif
