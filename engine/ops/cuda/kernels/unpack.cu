#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/unpack.h"
#include "engine/ops/cuda/kernels/weight_layout.h"
#include "engine/ops/cuda/kernels/weight_tiles.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;

__device__ __forceinline__ uint32_t Bf16Pair(float low, float high) {
  return BitsAs<uint32_t>(__floats2bfloat162_rn(low, high));
}

// The two weights that an operand's register stands for.
template <class F>
__device__ __forceinline__ uint32_t PlainPair(uint32_t operand, float scale, float min) {
  if constexpr (F::kFormat == TensorType::kBF16) return operand;
  return Bf16Pair(StoredWeight<F>(operand, 0, scale, min), StoredWeight<F>(operand, 1, scale, min));
}

// What a lane has of a step: 4 consecutive values of each of two rows for each of the step's mma instructions.
template <class F>
struct Lane {
  const WeightMatrix& w;
  typename F::Header header;
  typename F::Payload payload;
  int32_t low_row, high_row;  // -1: padding
  int32_t column;             // of mma 0
  __nv_bfloat16* plain;

  template <int j>
  __device__ __forceinline__ void Write() const {
    uint32_t operand[4];
    F::template Operand<j>(payload, operand);
    const RowScales scales = StoredScales<F>(header, payload, j / (F::kBlock / 16));
    WriteFour(low_row, column + 16 * j, PlainPair<F>(operand[0], scales.low, scales.low_min),
              PlainPair<F>(operand[2], scales.low, scales.low_min));
    WriteFour(high_row, column + 16 * j, PlainPair<F>(operand[1], scales.high, scales.high_min),
              PlainPair<F>(operand[3], scales.high, scales.high_min));
  }
  __device__ __forceinline__ void WriteFour(int32_t row, int32_t at, uint32_t first, uint32_t second) const {
    if (row < 0 || at >= w.k) return;
    *reinterpret_cast<uint2*>(plain + int64_t{row} * w.k + at) = uint2{first, second};
  }
};

// blockIdx.y: row tile; a warp a step of it. The weights are read once, 16 bytes a lane; a store of a warp covers whole
// sectors of 32 bytes, and the four stores of a row a line.
template <class F>
__global__ void __launch_bounds__(kWarps * 32)
    UnpackKernel(const __grid_constant__ WeightMatrix w, __nv_bfloat16* plain) {
  constexpr TileLayout layout = TileLayoutOf(F::kFormat);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int32_t step = static_cast<int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int32_t row_tile = static_cast<int32_t>(blockIdx.y);
  if (step * kStepK >= w.k) return;
  const std::byte* tile = static_cast<const std::byte*>(w.data) +
                          (int64_t{row_tile} * KTiles(layout, w.k) + step / layout.steps) * layout.bytes();
  const std::byte* at = tile + layout.header_bytes + step % layout.steps * layout.payload_bytes;
  const Lane<F> part = {w,
                        F::template LoadHeader<GlobalMemory>(tile, lane),
                        F::template LoadPayload<GlobalMemory>(at, lane),
                        UnpackedRow(row_tile, lane / 4, w.n, w.gated),
                        UnpackedRow(row_tile, lane / 4 + 8, w.n, w.gated),
                        step * kStepK + lane % 4 * 4,
                        plain};
  part.template Write<0>();
  part.template Write<1>();
  part.template Write<2>();
  part.template Write<3>();
}

template <class F>
void Launch(const WeightMatrix& w, void* plain, Stream stream) {
  const int32_t steps = (w.k + kStepK - 1) / kStepK;
  const dim3 grid(static_cast<unsigned>((steps + kWarps - 1) / kWarps), static_cast<unsigned>(RowTiles(w.n, w.gated)));
  SLUICE_LAUNCH(UnpackKernel<F>, grid, dim3(kWarps * 32), 0, stream, w, static_cast<__nv_bfloat16*>(plain));
}

}  // namespace

void LaunchUnpack(const WeightMatrix& w, void* plain, Stream stream) {
  if (w.n == 0 || w.k == 0) return;
  VisitFormat(TileFormats(), w.format, [&]<class F>(F) { Launch<F>(w, plain, stream); });
}

}  // namespace sluice::cuda
