// What each weight format gives the tensor cores: pieces of weight_layout.h, from global or shared memory to registers,
// and from there to operands of mma.m16n8k16.
//
// Weights are exact. bf16 and f16 go in as they are. Of a quantised block the integers q go in, exact in bf16 (|q| <=
// 128), and its scale multiplies the block's partial sum in f32:
//   y += d * sum(q x)                      Q8_0, Q4_0, Q5_0, Q6_K (d the product of both scales)
//   y += d * sum(q x) + m * sum(x)         Q4_1, Q4_K: the sum of x comes from an mma with weights of 1
// so a product differs from the one with dequantised f32 weights by f32 rounding only. For f16 weights x becomes f16:
// exact for 2^-17 <= |x| <= 65504, saturating beyond, to within 2^-25 below.
//
// A format F has
//   kFormat                                its WeightFormat
//   kBlock                                 values of k that share a scale, 16 or 32; 16 without scales
//   kScaled, kHasMin                       y += scale * partial sum; + min * sum(x)
//   Header, Payload                        a lane's part of a K tile's header, and of the payload of one step
//   LoadHeader<Memory>(header, lane)
//   LoadPayload<Memory>(payload, lane)
//   Operand<j>(payload, a)                 the operand of mma j of the step
//   ScalesOf(header, step, block)          of rows g and g + 8; block: within the step
//   Mma(d, a, b)                           b: two times two bf16 values of x
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/ptx.h"
#include "engine/ops/cuda/kernels/weight_layout.h"

namespace sluice::cuda {

// Where pieces come from. Payloads in global memory are read once and not kept in L1; a header may serve several steps.
struct GlobalMemory {
  template <class T>
  static __device__ __forceinline__ T Load(const std::byte* at) {
    return __ldg(reinterpret_cast<const T*>(at));
  }
  static __device__ __forceinline__ uint4 Stream(const std::byte* at) { return ptx::load_streaming(at); }
};
struct SharedMemory {
  template <class T>
  static __device__ __forceinline__ T Load(const std::byte* at) {
    return *reinterpret_cast<const T*>(at);
  }
  static __device__ __forceinline__ uint4 Stream(const std::byte* at) { return Load<uint4>(at); }
};

struct RowScales {
  float low = 1, high = 1;          // rows g, g + 8
  float low_min = 0, high_min = 0;  // kHasMin
};

template <int i>
__device__ __forceinline__ uint32_t WordOf(const uint4& v) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ __forceinline__ uint32_t WordOf(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ __forceinline__ float LowHalf(uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xffffu)));
}
__device__ __forceinline__ float HighHalf(uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
}

template <class To, class From>
__device__ __forceinline__ To BitsAs(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(to));
  return to;
}

// `pair`: two integers 0..127 in the mantissas of two bf16 of exponent 2^7, which makes them 128 + q; less `bias`.
template <int bias>
__device__ __forceinline__ uint32_t MinusBias(uint32_t pair) {
  return BitsAs<uint32_t>(__hfma2(BitsAs<__nv_bfloat162>(pair), __float2bfloat162_rn(1.0f),
                                  __float2bfloat162_rn(-static_cast<float>(bias))));
}

inline constexpr uint32_t kExponent7 = 0x43004300;  // two bf16 of 128.0

// ---------------------------------------------------------------- 16-bit floats

struct NoHeader {};

struct SixteenBit {
  static constexpr int kBlock = 16;
  static constexpr bool kScaled = false, kHasMin = false;
  using Header = NoHeader;
  struct Payload {
    uint4 mma[4];
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte*, int) {
    return {};
  }
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    Payload p;
#pragma unroll
    for (int j = 0; j < 4; ++j) p.mma[j] = Memory::Stream(payload + (j * 32 + lane) * 16);
    return p;
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
    a[0] = p.mma[j].x, a[1] = p.mma[j].y, a[2] = p.mma[j].z, a[3] = p.mma[j].w;
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header&, int, int) { return {}; }
};

struct BF16Weights : SixteenBit {
  static constexpr WeightFormat kFormat = WeightFormat::kBF16;
  static __device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint2& b) {
    const uint32_t fragment[2] = {b.x, b.y};
    ptx::mma_m16n8k16_bf16(d, a, fragment);
  }
};

struct F16Weights : SixteenBit {
  static constexpr WeightFormat kFormat = WeightFormat::kF16;
  static __device__ __forceinline__ uint32_t ToF16(uint32_t pair) {
    const __half2 limit = __float2half2_rn(65504.0f);
    const __half2 values = __floats2half2_rn(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    return BitsAs<uint32_t>(__hmin2_nan(__hmax2_nan(values, __hneg2(limit)), limit));
  }
  static __device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint2& b) {
    const uint32_t fragment[2] = {ToF16(b.x), ToF16(b.y)};
    ptx::mma_m16n8k16_f16(d, a, fragment);
  }
};

// ---------------------------------------------------------------- quantised

struct Quantised {
  static constexpr bool kScaled = true, kHasMin = false;
  static __device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint2& b) {
    const uint32_t fragment[2] = {b.x, b.y};
    ptx::mma_m16n8k16_bf16(d, a, fragment);
  }
};

// One f16 scale a block of 32 of each row; a step has two.
struct ScaledBy32 : Quantised {
  static constexpr int kBlock = 32;
  struct Header {
    uint2 scales;
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte* header, int lane) {
    return {Memory::template Load<uint2>(header + lane / 4 * 8)};
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, int, int block) {
    return {.low = block == 0 ? LowHalf(h.scales.x) : HighHalf(h.scales.x),
            .high = block == 0 ? LowHalf(h.scales.y) : HighHalf(h.scales.y)};
  }
};

struct Q8_0Weights : ScaledBy32 {
  static constexpr WeightFormat kFormat = WeightFormat::kQ8_0;
  struct Payload {
    uint4 mmas[2];
  };
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {{Memory::Stream(payload + lane * 16), Memory::Stream(payload + 512 + lane * 16)}};
  }
  // Byte `i` of `word` is q + 128: the mantissa of a float of exponent 2^23 holds it; what is left after the
  // subtraction fits the upper half of a float, which is a bf16.
  template <int i>
  static __device__ __forceinline__ float Integer(uint32_t word) {
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u + i)) - (8388608.0f + 128.0f);
  }
  template <int first>
  static __device__ __forceinline__ uint32_t Pair(uint32_t word) {
    return __byte_perm(__float_as_uint(Integer<first>(word)), __float_as_uint(Integer<first + 1>(word)), 0x7632u);
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
    const uint32_t low = WordOf<j % 2 * 2>(p.mmas[j / 2]), high = WordOf<j % 2 * 2 + 1>(p.mmas[j / 2]);
    a[0] = Pair<0>(low), a[1] = Pair<2>(low), a[2] = Pair<0>(high), a[3] = Pair<2>(high);
  }
};

struct Q4_0Weights : ScaledBy32 {
  static constexpr WeightFormat kFormat = WeightFormat::kQ4_0;
  struct Payload {
    uint4 nibbles;
  };
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {Memory::Stream(payload + lane * 16)};
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = MinusBias<128 + 8>((WordOf<j>(p.nibbles) >> 4 * i & 0x000f000fu) | kExponent7);
  }
};

struct Q5_0Weights : ScaledBy32 {
  static constexpr WeightFormat kFormat = WeightFormat::kQ5_0;
  struct Payload {
    uint4 nibbles;
    uint32_t fifth;
  };
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {Memory::Stream(payload + lane * 16), Memory::template Load<uint32_t>(payload + 512 + lane * 4)};
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int bit = 4 * j + i;
      const uint32_t fifth = (bit < 4 ? p.fifth << (4 - bit) : p.fifth >> (bit - 4)) & 0x00100010u;
      a[i] = MinusBias<128 + 16>((WordOf<j>(p.nibbles) >> 4 * i & 0x000f000fu) | fifth | kExponent7);
    }
  }
};

// Nibbles that stand for themselves, 0..15, with a minimum a block.
struct UnsignedNibbles : Quantised {
  static constexpr int kBlock = 32;
  static constexpr bool kHasMin = true;
  struct Payload {
    uint4 nibbles;
  };
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {Memory::Stream(payload + lane * 16)};
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = MinusBias<128>((WordOf<j>(p.nibbles) >> 4 * i & 0x000f000fu) | kExponent7);
  }
};

struct Q4_1Weights : UnsignedNibbles {
  static constexpr WeightFormat kFormat = WeightFormat::kQ4_1;
  struct Header {
    uint4 scales_and_mins;
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte* header, int lane) {
    return {Memory::template Load<uint4>(header + lane / 4 * 16)};
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, int, int block) {
    const uint32_t low = WordOf(h.scales_and_mins, block), high = WordOf(h.scales_and_mins, 2 + block);
    return {LowHalf(low), LowHalf(high), HighHalf(low), HighHalf(high)};
  }
};

struct Q4_KWeights : UnsignedNibbles {
  static constexpr WeightFormat kFormat = WeightFormat::kQ4_K;
  struct Header {
    uint4 low, high;  // d and dmin, then the 6-bit scales and minima of 8 blocks
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte* header, int lane) {
    return {Memory::template Load<uint4>(header + lane / 4 * 16),
            Memory::template Load<uint4>(header + (lane / 4 + 8) * 16)};
  }
  // Blocks 0 to 3 have their six bits in bytes of `y` (scales) and `z` (minima); 4 to 7 their low four in halves of the
  // bytes of `w`, and the others on top of the bytes of 0 to 3.
  static __device__ __forceinline__ float2 ScaleAndMin(const uint4& row, int block) {
    const int at = block % 4 * 8;
    const uint32_t y = row.y >> at, z = row.z >> at, w = row.w >> at;
    const uint32_t scale = block < 4 ? y & 63 : (w & 15) | (y >> 2 & 0x30);
    const uint32_t min = block < 4 ? z & 63 : (w >> 4 & 15) | (z >> 2 & 0x30);
    return make_float2(LowHalf(row.x) * static_cast<float>(scale), -HighHalf(row.x) * static_cast<float>(min));
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, int step, int block) {
    const float2 low = ScaleAndMin(h.low, 2 * step + block), high = ScaleAndMin(h.high, 2 * step + block);
    return {low.x, high.x, low.y, high.y};
  }
};

struct Q6_KWeights : Quantised {
  static constexpr WeightFormat kFormat = WeightFormat::kQ6_K;
  static constexpr int kBlock = 16;
  struct Header {
    uint4 low, high;  // 16 int8 scales
    uint16_t low_d, high_d;
  };
  struct Payload {
    uint4 nibbles;
    uint2 upper;
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte* header, int lane) {
    const int g = lane / 4;
    return {Memory::template Load<uint4>(header + g * 16), Memory::template Load<uint4>(header + (g + 8) * 16),
            Memory::template Load<uint16_t>(header + 256 + g * 2),
            Memory::template Load<uint16_t>(header + 256 + (g + 8) * 2)};
  }
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {Memory::Stream(payload + lane * 16), Memory::template Load<uint2>(payload + 512 + lane * 8)};
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
    const uint32_t word = j < 2 ? p.upper.x : p.upper.y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int bit = 8 * (j % 2) + 2 * i;
      const uint32_t upper = (bit < 4 ? word << (4 - bit) : word >> (bit - 4)) & 0x00300030u;
      a[i] = MinusBias<128 + 32>((WordOf<j>(p.nibbles) >> 4 * i & 0x000f000fu) | upper | kExponent7);
    }
  }
  static __device__ __forceinline__ float Scale(const uint4& scales, uint16_t d, int step, int block) {
    const int32_t scale = static_cast<int32_t>(WordOf(scales, step) << (24 - 8 * block)) >> 24;
    return LowHalf(d) * static_cast<float>(scale);
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, int step, int block) {
    return {.low = Scale(h.low, h.low_d, step, block), .high = Scale(h.high, h.high_d, step, block)};
  }
};

}  // namespace sluice::cuda
