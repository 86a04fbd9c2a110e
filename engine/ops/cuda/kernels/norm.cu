#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/norm.h"
#include "engine/ops/cuda/kernels/reduce.cuh"

namespace sluice::cuda {
namespace {

// ---------------------------------------------------------------- norms

struct RowsOfNorm {
  const float* x;
  int64_t x_stride;
  const int32_t* rows;
  int32_t d;
  NormWeightsView norm;
  // Where the result goes: rounded, as it is, added to something. Null: nowhere.
  void* y;
  Element y_element;
  float* y_f32;
  float* sum;
};

template <int kWarps>
struct NormShared {
  float partials[kWarps];
};

template <bool kAligned>
__device__ float4 Scaled(const RowsOfNorm& args, int32_t column, float4 v, float scale) {
  v = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
  if (args.norm.weight != nullptr) {
    const float4 w = LoadFour(args.norm.weight, column, args.d, kAligned);
    const float offset = args.norm.params.weight_offset;
    v = {v.x * (w.x + offset), v.y * (w.y + offset), v.z * (w.z + offset), v.w * (w.w + offset)};
  }
  if (args.norm.bias != nullptr) {
    const float4 b = LoadFour(args.norm.bias, column, args.d, kAligned);
    v = {v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w};
  }
  return v;
}

// A thread holds kFours groups of four columns of its block's row, so that the row is read once.
template <int kWarps, int kFours, bool kAligned>
__global__ void __launch_bounds__(kWarps* kWarpLanes) NormKernel(const __grid_constant__ RowsOfNorm args) {
  SLUICE_SHARED(NormShared<kWarps>, shared);
  const int64_t row = blockIdx.x, source = args.rows != nullptr ? args.rows[row] : row;
  if (source < 0) return;
  const float* x = args.x + source * args.x_stride;
  const auto column = [](int i) { return int32_t(threadIdx.x + i * kWarps * kWarpLanes) * 4; };
  float4 v[kFours];
#pragma unroll
  for (int i = 0; i < kFours; ++i) v[i] = LoadFour(x, column(i), args.d, kAligned);

  if (args.norm.params.kind == NormKind::kLayer) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kFours; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    const float mean = BlockReduce(sum, Plus(), shared.partials) / float(args.d);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const auto centred = [&](int k, float value) { return column(i) + k < args.d ? value - mean : 0.0f; };
      v[i] = {centred(0, v[i].x), centred(1, v[i].y), centred(2, v[i].z), centred(3, v[i].w)};
    }
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    squares = fmaf(v[i].x, v[i].x, squares);
    squares = fmaf(v[i].y, v[i].y, squares);
    squares = fmaf(v[i].z, v[i].z, squares);
    squares = fmaf(v[i].w, v[i].w, squares);
  }
  const float square = BlockReduce(squares, Plus(), shared.partials) / float(args.d);
  const float scale = 1 / sqrtf(square + args.norm.params.eps);

  const int64_t first = row * args.d;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const float4 y = Scaled<kAligned>(args, column(i), v[i], scale);
    if (args.y != nullptr) StoreFour(args.y, args.y_element, first, column(i), args.d, kAligned, y);
    if (args.y_f32 != nullptr) StoreFour(args.y_f32, Element::kF32, first, column(i), args.d, kAligned, y);
    if (args.sum == nullptr) continue;
    const float4 s = LoadFour(args.sum + first, column(i), args.d, kAligned);
    StoreFour(args.sum, Element::kF32, first, column(i), args.d, kAligned,
              {s.x + y.x, s.y + y.y, s.z + y.z, s.w + y.w});
  }
}

template <int kWarps, int kFours>
void Launch(const RowsOfNorm& args, int32_t num_rows, bool aligned, Stream stream) {
  const dim3 grid(static_cast<unsigned>(num_rows)), block(kWarps * kWarpLanes);
  const size_t shared_bytes = sizeof(NormShared<kWarps>);
  if (aligned) {
    SLUICE_LAUNCH((NormKernel<kWarps, kFours, true>), grid, block, shared_bytes, stream, args);
  } else {
    SLUICE_LAUNCH((NormKernel<kWarps, kFours, false>), grid, block, shared_bytes, stream, args);
  }
}

bool AllAligned(const RowsOfNorm& args) {
  return args.d % 4 == 0 && args.x_stride % 4 == 0 && IsAligned(args.x) && IsAligned(args.norm.weight) &&
         IsAligned(args.norm.bias) && IsAligned(args.y) && IsAligned(args.y_f32) && IsAligned(args.sum);
}

void LaunchRows(const RowsOfNorm& args, int32_t num_rows, Stream stream) {
  if (num_rows == 0) return;
  const bool aligned = AllAligned(args);
  if (args.d <= 1024) return Launch<8, 1>(args, num_rows, aligned, stream);
  if (args.d <= 2048) return Launch<8, 2>(args, num_rows, aligned, stream);
  if (args.d <= 4096) return Launch<8, 4>(args, num_rows, aligned, stream);
  if (args.d <= 8192) return Launch<8, 8>(args, num_rows, aligned, stream);
  Launch<32, 5>(args, num_rows, aligned, stream);
}

// ---------------------------------------------------------------- without a norm

constexpr unsigned kThreads = 256;

unsigned BlocksOf(int64_t count, int64_t per_thread) {
  const int64_t per_block = per_thread * kThreads;
  return unsigned((count + per_block - 1) / per_block);
}

// Eight values a thread: 16 bytes of bf16.
__global__ void __launch_bounds__(kThreads)
    ConvertKernel(const float* x, int64_t count, void* y, Element y_element, bool aligned) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (aligned && first + 8 <= count) {
    const float4 a = *reinterpret_cast<const float4*>(x + first), b = *reinterpret_cast<const float4*>(x + first + 4);
    if (y_element == Element::kBF16) {
      struct alignas(16) EightBf16 {
        FourBf16 a, b;
      };
      *reinterpret_cast<EightBf16*>(static_cast<__nv_bfloat16*>(y) + first) = {ToBf16(a), ToBf16(b)};
    } else {
      *reinterpret_cast<float4*>(static_cast<float*>(y) + first) = a;
      *reinterpret_cast<float4*>(static_cast<float*>(y) + first + 4) = b;
    }
    return;
  }
  for (int64_t i = first; i < first + 8 && i < count; ++i) StoreElement(y, y_element, i, x[i]);
}

__global__ void __launch_bounds__(kThreads) AddKernel(const float* y, int64_t count, float* x, bool aligned) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (aligned && first + 4 <= count) {
    const float4 a = *reinterpret_cast<const float4*>(x + first), b = *reinterpret_cast<const float4*>(y + first);
    *reinterpret_cast<float4*>(x + first) = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    return;
  }
  for (int64_t i = first; i < first + 4 && i < count; ++i) x[i] += y[i];
}

}  // namespace

void LaunchNorm(const NormArgs& args, Stream stream) {
  LaunchRows({args.x, args.d, args.rows, args.d, args.norm, args.y, args.y_element, args.y_f32, nullptr}, args.num_rows,
             stream);
}

void LaunchNormColumns(const NormColumnsArgs& args, Stream stream) {
  LaunchRows({args.x, args.x_stride, nullptr, args.d, args.norm, args.y, args.y_element, nullptr, nullptr},
             args.num_rows, stream);
}

void LaunchAddNormed(const AddNormedArgs& args, Stream stream) {
  if (args.has_norm) {
    LaunchRows({args.y, args.d, nullptr, args.d, args.norm, nullptr, Element::kF32, nullptr, args.x}, args.num_rows,
               stream);
    return;
  }
  const int64_t count = int64_t{args.num_rows} * args.d;
  if (count == 0) return;
  SLUICE_LAUNCH(AddKernel, dim3(BlocksOf(count, 4)), dim3(kThreads), 0, stream, args.y, count, args.x,
                IsAligned(args.y) && IsAligned(args.x));
}

void LaunchConvert(const float* x, int64_t count, void* y, Element y_element, Stream stream) {
  if (count == 0) return;
  SLUICE_LAUNCH(ConvertKernel, dim3(BlocksOf(count, 8)), dim3(kThreads), 0, stream, x, count, y, y_element,
                IsAligned(x) && IsAligned(y));
}

}  // namespace sluice::cuda
