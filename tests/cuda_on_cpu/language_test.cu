#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"
#include "tests/cuda_on_cpu/kernels_of_tests.h"

namespace sluice::cuda_testing {
namespace {

// ---------------------------------------------------------------- threads and blocks

__global__ void PlacesKernel(unsigned* places) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned* out = places + 12 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
  const unsigned place[12] = {threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z,
                              blockDim.x,  blockDim.y,  blockDim.z,  gridDim.x,  gridDim.y,  gridDim.z};
  for (int i = 0; i < 12; ++i) out[i] = place[i];
}

__global__ void TurnsKernel(unsigned* turns, unsigned* counter) {
  turns[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1);
}

struct Bytes {
  unsigned char bytes[1];
};

__global__ void SharedAtStartKernel(unsigned* not_nan, unsigned bytes) {
  SLUICE_SHARED(Bytes, shared);
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) {
    if (shared.bytes[i] != 0xff) atomicAdd(not_nan, 1);
    shared.bytes[i] = 0;
  }
}

__global__ void __launch_bounds__(64) FillKernel(int* out, const int num, int value) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < num) out[i] = value;
  value = 0;  // a thread's own copy
}

// ---------------------------------------------------------------- barriers

struct ReverseShared {
  int values[256];
};

__global__ void __launch_bounds__(256) ReverseKernel(int* values, int rounds) {
  SLUICE_SHARED(ReverseShared, shared);
  const int i = static_cast<int>(threadIdx.x);
  int value = values[blockIdx.x * 256 + i];
  for (int round = 0; round < rounds; ++round) {
    shared.values[i] = value;
    __syncthreads();
    value = shared.values[255 - i];
    __syncthreads();
  }
  values[blockIdx.x * 256 + i] = value;
}

__global__ void BarrierVotesKernel(int* out, const int* predicates) {
  int* mine = out + 5 * threadIdx.x;
  const int predicate = predicates[threadIdx.x];
  mine[0] = __syncthreads_count(predicate);
  mine[1] = __syncthreads_and(predicate) != 0;
  mine[2] = __syncthreads_or(predicate) != 0;
  mine[3] = __syncthreads_and(1) != 0;
  mine[4] = __syncthreads_or(0) != 0;
}

struct SumShared {
  int values[256];
};

__global__ void EarlyExitKernel(int* sum, int stay) {
  SLUICE_SHARED(SumShared, shared);
  const int i = static_cast<int>(threadIdx.x);
  if (i >= stay) return;
  shared.values[i] = i;
  __syncthreads();
  if (i != stay - 1) return;
  int total = 0;
  for (int j = 0; j < stay; ++j) total += shared.values[j];
  *sum = total;
}

__global__ void __launch_bounds__(128) NamedBarriersKernel(int* out) {
  SLUICE_SHARED(SumShared, shared);
  const int i = static_cast<int>(threadIdx.x), half = i / 64, within = i % 64;
  int value = within;
  for (int round = 0; round < 3 + 4 * half; ++round) {
    shared.values[i] = value;
    ptx::barrier_sync(1 + half, 64);
    value = shared.values[half * 64 + (within + 1) % 64];
    ptx::barrier_sync(1 + half, 64);
  }
  out[i] = value;
}

// ---------------------------------------------------------------- warps

constexpr unsigned kAll = 0xffffffffu;

__global__ void ShufflesKernel(int* out, const int* values, int source, int delta) {
  const int value = values[threadIdx.x];
  int* mine = out + 8 * threadIdx.x;
  int at = 0;
  for (int width = 32; width >= 8; width -= 24) {
    mine[at++] = __shfl_sync(kAll, value, source, width);
    mine[at++] = __shfl_xor_sync(kAll, value, delta, width);
    mine[at++] = __shfl_up_sync(kAll, value, static_cast<unsigned>(delta), width);
    mine[at++] = __shfl_down_sync(kAll, value, static_cast<unsigned>(delta), width);
  }
}

__global__ void ShufflesOf8BytesKernel(double* out, const double* values) {
  out[threadIdx.x] = __shfl_xor_sync(kAll, values[threadIdx.x], 5);
}

__global__ void HalfWarpsKernel(int* out, const int* values) {
  const unsigned upper = threadIdx.x / 16, mask = upper ? 0xffff0000u : 0x0000ffffu;
  int value = values[threadIdx.x];
  for (unsigned round = 0; round <= upper; ++round)
    for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);
  out[threadIdx.x] = value;
}

__global__ void VotesKernel(unsigned* out, const unsigned* values, unsigned mask) {
  const unsigned lane = threadIdx.x;
  if ((mask >> lane & 1) == 0) return;
  unsigned* mine = out + 12 * lane;
  const unsigned value = values[lane];
  mine[0] = __ballot_sync(mask, value & 1);
  mine[1] = __any_sync(mask, value > 100) != 0;
  mine[2] = __all_sync(mask, value > 0) != 0;
  mine[3] = __reduce_add_sync(mask, value);
  mine[4] = __reduce_min_sync(mask, value);
  mine[5] = __reduce_max_sync(mask, value);
  mine[6] = __reduce_and_sync(mask, value);
  mine[7] = __reduce_or_sync(mask, value);
  mine[8] = __reduce_xor_sync(mask, value);
  mine[9] = __match_any_sync(mask, value);
  int all_equal = 0;
  mine[10] = __match_all_sync(mask, value, &all_equal);
  mine[11] = static_cast<unsigned>(__reduce_min_sync(mask, -static_cast<int>(value)));
}

struct WarpShared {
  int values[32];
};

__global__ void SyncWarpKernel(int* out) {
  SLUICE_SHARED(WarpShared, shared);
  const int lane = static_cast<int>(threadIdx.x);
  int value = lane;
  for (int round = 0; round < 5; ++round) {
    shared.values[lane] = value;
    __syncwarp();
    value = shared.values[(lane + 7) % 32];
    __syncwarp();
  }
  out[lane] = value;
}

__global__ void AtomicsKernel(int* out, float* sum) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&out[0], i);
  atomicSub(&out[1], i);
  atomicMin(&out[2], -i);
  atomicMax(&out[3], i);
  atomicOr(&out[4], 1 << i % 31);
  atomicAnd(&out[5], ~(1 << i % 31));
  atomicXor(&out[6], i);
  int seen = 0, expected;  // a maximum by compare and swap
  do {
    expected = seen;
    seen = atomicCAS(&out[7], expected, expected < i ? i : expected);
  } while (seen != expected);
  atomicInc(reinterpret_cast<unsigned*>(&out[8]), 6);
  atomicAdd(sum, 1.0f);
}

struct FlagShared {
  int last;
};

// The block that comes last sums what all have written.
__global__ void LastBlockKernel(int* sum, int* partials, int* done) {
  SLUICE_SHARED(FlagShared, shared);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x * gridDim.x);
  partials[static_cast<int>(blockIdx.x * blockDim.x) + thread] = thread;
  __syncthreads();
  if (thread == 0) {
    __threadfence();
    shared.last = atomicAdd(done, 1) == static_cast<int>(gridDim.x) - 1;
    __threadfence();
  }
  __syncthreads();
  if (shared.last && thread == 5) {
    int total = 0;
    for (int i = 0; i < threads; ++i) total += partials[i];
    *sum = total;
  }
}

// ---------------------------------------------------------------- cp.async

struct PipelineShared {
  uint4 stages[4][128];
};

__global__ void __launch_bounds__(128)
    PipelineKernel(uint4* out, const uint4* in, int num_tiles, int valid, int stages) {
  SLUICE_SHARED(PipelineShared, shared);
  const int thread = static_cast<int>(threadIdx.x);
  const auto begin = [&](int tile) {
    const int i = tile * 128 + thread;
    if (tile < num_tiles) ptx::cp_async16(&shared.stages[tile % stages][thread], in + min(i, valid - 1), i < valid);
    ptx::cp_async_commit();
  };
  for (int tile = 0; tile < stages - 1; ++tile) begin(tile);
  for (int tile = 0; tile < num_tiles; ++tile) {
    begin(tile + stages - 1);
    switch (stages) {
      case 2:
        ptx::cp_async_wait<1>();
        break;
      case 3:
        ptx::cp_async_wait<2>();
        break;
      default:
        ptx::cp_async_wait<3>();
    }
    __syncthreads();
    out[tile * 128 + thread] = shared.stages[tile % stages][127 - thread];
    __syncthreads();
  }
  ptx::cp_async_wait<0>();
}

__global__ void ReadTooEarlyKernel(uint4* out, const uint4* in) {
  SLUICE_SHARED(PipelineShared, shared);
  ptx::cp_async16(&shared.stages[0][0], in);
  ptx::cp_async_commit();
  out[0] = shared.stages[0][0];
  ptx::cp_async_wait<0>();
  out[1] = shared.stages[0][0];
}

// ---------------------------------------------------------------- matrices

struct MatricesShared {
  __align__(16) uint16_t elements[4][8][8];
};

__global__ void LoadMatricesKernel(uint32_t* out, const uint16_t* matrices) {
  SLUICE_SHARED(MatricesShared, shared);
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 256; i += 32) shared.elements[i / 64][i / 8 % 8][i % 8] = matrices[i];
  __syncthreads();
  const uint16_t* row = shared.elements[lane / 8][lane % 8];
  uint32_t r4[4], t4[4];
  ptx::ldmatrix_x4(r4, row);
  ptx::ldmatrix_x4_trans(t4, row);
  const uint32_t all[8] = {r4[0], r4[1], r4[2], r4[3], t4[0], t4[1], t4[2], t4[3]};
  for (int i = 0; i < 8; ++i) out[8 * lane + i] = all[i];
}

template <bool kF16>
__global__ void ProductKernel(float* d, const uint16_t* a, const uint16_t* b) {
  const unsigned g = threadIdx.x / 4, q = threadIdx.x % 4;
  const auto pair = [](uint16_t low, uint16_t high) { return uint32_t{low} | uint32_t{high} << 16; };
  uint32_t fa[4], fb[2];
  float fd[4];
  for (unsigned i = 0; i < 4; ++i) {
    const uint16_t* at = a + (g + i % 2 * 8) * 16 + q * 2 + i / 2 * 8;
    fa[i] = pair(at[0], at[1]);
    fd[i] = d[(g + i / 2 * 8) * 8 + q * 2 + i % 2];
  }
  for (unsigned i = 0; i < 2; ++i) {
    const uint16_t* at = b + (q * 2 + i * 8) * 8 + g;
    fb[i] = pair(at[0], at[8]);
  }
  kF16 ? ptx::mma_m16n8k16_f16(fd, fa, fb) : ptx::mma_m16n8k16_bf16(fd, fa, fb);
  for (unsigned i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = fd[i];
}

template <class LayoutB, nvcuda::wmma::layout_t kStore>
__global__ void WmmaKernel(float* d, const __nv_bfloat16* a, const __nv_bfloat16* b) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB> fb;
  fragment<accumulator, 16, 16, 16, float> fd;
  fill_fragment(fd, 0.0f);
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(fd, fa, fb, fd);
  store_matrix_sync(d, fd, 16, kStore);
}

// ---------------------------------------------------------------- functions of one thread

__global__ void IntrinsicsKernel(uint32_t* out) {
  int at = 0;
  const auto put = [&](auto value) {
    static_assert(sizeof(value) == 4);
    out[at++] = *reinterpret_cast<const uint32_t*>(&value);
  };
  const float nan = __int_as_float(0x7fc00000);
  put(max(3, -5));  // 0
  put(min(3u, 7u));
  put(fmaxf(nan, 2.0f));
  put(max(1.5f, nan));
  put(rsqrtf(0.25f));
  put(__fdividef(3.0f, 4.0f));
  put(__expf(0.0f));
  put(__logf(1.0f));
  put(__float_as_int(1.0f));
  put(__uint_as_float(0x40000000u));
  put(__float2int_rn(2.5f));  // 10
  put(__float2int_rz(-2.7f));
  put(__float2int_rd(-2.2f));
  put(__float2int_ru(2.2f));
  put(__float2int_rn(1e20f));
  put(__float2int_rn(nan));
  put(__float2uint_rn(-3.0f));
  put(__popc(0xf0f0u));
  put(__clz(1));
  put(__ffs(0x80));
  put(__brev(1u));  // 20
  put(__umulhi(0x80000000u, 6u));
  put(__byte_perm(0x33221100u, 0x77665544u, 0x7531u));
  put(__byte_perm(0x00008000u, 0u, 0x0009u));
  put(__funnelshift_l(0x80000000u, 1u, 1u));
  put(__funnelshift_r(0u, 3u, 1u));
  put(__dp4a(0x01ff02fe, 0x03040506, 10));
  put(ptx::lop3<0xea>(0xf0u, 0xccu, 0xaau));
  put(ptx::exp2(3.0f));
  put(ptx::exp2(-__int_as_float(0x7f800000)));
  // 30
  put(__hfma2(__floats2half2_rn(2.0f, 3.0f), __floats2half2_rn(4.0f, 5.0f), __floats2half2_rn(1.0f, -1.0f)));
  put(__hfma2(__floats2bfloat162_rn(2.0f, 3.0f), __floats2bfloat162_rn(4.0f, 5.0f),
              __floats2bfloat162_rn(1.0f, -1.0f)));
  put(__hadd2(__floats2half2_rn(2.0f, 3.0f), __floats2half2_rn(4.0f, 5.0f)));
  put(__float2bfloat162_rn(1.00390625f));       // a tie, to even
  put(__half2float(__ushort_as_half(0x0001)));  // the least subnormal
  put(__saturatef(1.5f));
  put(__saturatef(nan));
  const uint4 words = ptx::load_streaming(out);
  put(words.x);
  put(__ldg(out + 1));
}

}  // namespace

// ---------------------------------------------------------------- launchers

void LaunchPlaces(unsigned* places, Size3 grid, Size3 block, Stream stream) {
  SLUICE_LAUNCH(PlacesKernel, dim3(grid.x, grid.y, grid.z), dim3(block.x, block.y, block.z), 0, stream, places);
}
void LaunchTurns(unsigned* turns, unsigned* counter, unsigned blocks, unsigned threads, Stream stream) {
  SLUICE_LAUNCH(TurnsKernel, dim3(blocks), dim3(threads), 0, stream, turns, counter);
}
void LaunchSharedAtStart(unsigned* not_nan, unsigned blocks, unsigned bytes, Stream stream) {
  SLUICE_LAUNCH(SharedAtStartKernel, dim3(blocks), dim3(64), bytes, stream, not_nan, bytes);
}
void LaunchFill(int* out, int num, int* evaluations, Stream stream) {
  SLUICE_LAUNCH_DEPENDENT(FillKernel, dim3(1), dim3(64), 0, stream, out, num, 40 + ++*evaluations);
}
void LaunchReverse(int* values, int blocks, int rounds, Stream stream) {
  SLUICE_LAUNCH(ReverseKernel, dim3(static_cast<unsigned>(blocks)), dim3(256), sizeof(ReverseShared), stream, values,
                rounds);
}
void LaunchBarrierVotes(int* out, const int* predicates, int threads, Stream stream) {
  SLUICE_LAUNCH(BarrierVotesKernel, dim3(1), dim3(static_cast<unsigned>(threads)), 0, stream, out, predicates);
}
void LaunchEarlyExit(int* sum, int threads, int stay, Stream stream) {
  SLUICE_LAUNCH(EarlyExitKernel, dim3(1), dim3(static_cast<unsigned>(threads)), sizeof(SumShared), stream, sum, stay);
}
void LaunchNamedBarriers(int* out, Stream stream) {
  SLUICE_LAUNCH(NamedBarriersKernel, dim3(1), dim3(128), sizeof(SumShared), stream, out);
}
void LaunchShuffles(int* out, const int* values, int source, int delta, Stream stream) {
  SLUICE_LAUNCH(ShufflesKernel, dim3(1), dim3(64), 0, stream, out, values, source, delta);
}
void LaunchShufflesOf8Bytes(double* out, const double* values, Stream stream) {
  SLUICE_LAUNCH(ShufflesOf8BytesKernel, dim3(1), dim3(32), 0, stream, out, values);
}
void LaunchHalfWarps(int* out, const int* values, Stream stream) {
  SLUICE_LAUNCH(HalfWarpsKernel, dim3(1), dim3(32), 0, stream, out, values);
}
void LaunchVotes(unsigned* out, const unsigned* values, unsigned mask, Stream stream) {
  SLUICE_LAUNCH(VotesKernel, dim3(1), dim3(32), 0, stream, out, values, mask);
}
void LaunchSyncWarp(int* out, Stream stream) {
  SLUICE_LAUNCH(SyncWarpKernel, dim3(1), dim3(32), sizeof(WarpShared), stream, out);
}
void LaunchAtomics(int* out, float* sum, unsigned blocks, Stream stream) {
  SLUICE_LAUNCH(AtomicsKernel, dim3(blocks), dim3(64), 0, stream, out, sum);
}
void LaunchLastBlock(int* sum, int* partials, int* done, unsigned blocks, Stream stream) {
  SLUICE_LAUNCH(LastBlockKernel, dim3(blocks), dim3(64), sizeof(FlagShared), stream, sum, partials, done);
}
void LaunchPipeline(uint32_t* out, const uint32_t* in, int num_tiles, int valid, int stages, Stream stream) {
  SLUICE_LAUNCH(PipelineKernel, dim3(1), dim3(128), sizeof(PipelineShared), stream, reinterpret_cast<uint4*>(out),
                reinterpret_cast<const uint4*>(in), num_tiles, valid, stages);
}
void LaunchReadTooEarly(uint32_t* out, const uint32_t* in, Stream stream) {
  SLUICE_LAUNCH(ReadTooEarlyKernel, dim3(1), dim3(1), sizeof(PipelineShared), stream, reinterpret_cast<uint4*>(out),
                reinterpret_cast<const uint4*>(in));
}
void LaunchLoadMatrices(uint32_t* out, const uint16_t* matrices, Stream stream) {
  SLUICE_LAUNCH(LoadMatricesKernel, dim3(1), dim3(32), sizeof(MatricesShared), stream, out, matrices);
}
void LaunchProduct(float* d, const uint16_t* a, const uint16_t* b, bool f16, Stream stream) {
  if (f16)
    SLUICE_LAUNCH((ProductKernel<true>), dim3(1), dim3(32), 0, stream, d, a, b);
  else
    SLUICE_LAUNCH((ProductKernel<false>), dim3(1), dim3(32), 0, stream, d, a, b);
}
void LaunchWmma(float* d, const uint16_t* a, const uint16_t* b, bool by_columns, Stream stream) {
  const auto* a16 = reinterpret_cast<const __nv_bfloat16*>(a);
  const auto* b16 = reinterpret_cast<const __nv_bfloat16*>(b);
  if (by_columns)
    SLUICE_LAUNCH((WmmaKernel<nvcuda::wmma::col_major, nvcuda::wmma::mem_col_major>), dim3(1), dim3(32), 0, stream, d,
                  a16, b16);
  else
    SLUICE_LAUNCH((WmmaKernel<nvcuda::wmma::row_major, nvcuda::wmma::mem_row_major>), dim3(1), dim3(32), 0, stream, d,
                  a16, b16);
}
void LaunchIntrinsics(uint32_t* out, Stream stream) {
  SLUICE_LAUNCH(IntrinsicsKernel, dim3(1), dim3(1), 0, stream, out);
}

}  // namespace sluice::cuda_testing
