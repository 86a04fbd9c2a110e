// What each weight format gives the tensor cores: pieces of weight_layout.h, from global or shared memory to registers,
// and from there to operands of mma.m16n8k16.
//
// Weights are exact. bf16 and f16 go in as they are. Of a quantised block the integers q go in, exact in bf16 (|q| <=
// 128), and its scale multiplies the block's partial sum in f32:
//   y += d * sum(q x)                      Q8_0, Q4_0, Q5_0, Q6_K (d the product of both scales)
//   y += d * sum(q x) + m * sum(x)         Q4_1, Q4_K: the sum of x comes from an mma with weights of 1
// so a product differs from the one with dequantised f32 weights by f32 rounding only. (Of the latter 128 + q go in,
// which saves a subtraction a pair, and m - 128 d takes it back.) For f16 weights x becomes f16: exact for 2^-17 <= |x|
// <= 65504, saturating beyond, to within 2^-25 below.
//
// A format F has
//   kFormat                                the type whose values it holds
//   kBlock                                 values of k that share a scale, 16 or 32; 16 without scales
//   kGranule                               k is a multiple of it
//   kScaled, kHasMin                       y += scale * partial sum; + min * sum(x)
//   Header, Payload                        a lane's part of a K tile's header, and of the payload of one step
//   LoadHeader<Memory>(header, lane)
//   LoadPayload<Memory>(payload, lane)
//   Operand<j>(payload, a)                 the operand of mma j of the step
//   ScalesOf(header, payload, block)       of rows g and g + 8; block: within the step
//   StoredScales(header, payload, block)   kHasMin: likewise, without what the minimum takes back
//   Code(operand, half)                    the number that half a register of an operand stands for, q or the weight
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

inline constexpr uint32_t kExponent7 = 0x43004300;  // two bf16 of 128.0

// (word & mask) | rest, one instruction where two of the three are in registers.
__device__ __forceinline__ uint32_t Masked(uint32_t word, uint32_t mask, uint32_t rest) {
  return ptx::lop3<(0xf0 & 0xcc) | 0xaa>(word, mask, rest);
}

// The two nibbles of `word` that register i wants, in the mantissas of two bf16 of exponent 2^7, which makes them 128 +
// q. `above`: that exponent, and bits above the nibbles.
__device__ __forceinline__ uint32_t NibblePair(uint32_t word, int i, uint32_t above = kExponent7) {
  return Masked(word >> 4 * i, 0x000f000fu, above);
}

// Two bf16 less `bias`; exact here.
template <int bias>
__device__ __forceinline__ uint32_t Minus(uint32_t pair) {
  return BitsAs<uint32_t>(__hfma2(BitsAs<__nv_bfloat162>(pair), __float2bfloat162_rn(1.0f),
                                  __float2bfloat162_rn(-static_cast<float>(bias))));
}

// 2^23 + byte i of `word`: the byte in the mantissa of a float.
__device__ __forceinline__ float ByteAbove2To23(uint32_t word, int i) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u + static_cast<unsigned>(i)));
}

// ---------------------------------------------------------------- 16-bit floats

struct NoHeader {};

struct SixteenBit {
  static constexpr int kGranule = 8;
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
  static __device__ __forceinline__ RowScales ScalesOf(const Header&, const Payload&, int) { return {}; }
};

// Half 0 or 1 of a pair of bf16.
__device__ __forceinline__ float Bf16Half(uint32_t pair, int half) {
  return __uint_as_float(half == 0 ? pair << 16 : pair & 0xffff0000u);
}

struct BF16Weights : SixteenBit {
  static constexpr TensorType kFormat = TensorType::kBF16;
  static __device__ __forceinline__ float Code(uint32_t operand, int half) { return Bf16Half(operand, half); }
  static __device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint2& b) {
    const uint32_t fragment[2] = {b.x, b.y};
    ptx::mma_m16n8k16_bf16(d, a, fragment);
  }
};

struct F16Weights : SixteenBit {
  static constexpr TensorType kFormat = TensorType::kF16;
  static __device__ __forceinline__ float Code(uint32_t operand, int half) {
    return half == 0 ? LowHalf(operand) : HighHalf(operand);
  }
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
  static constexpr int kGranule = 32;
  static constexpr bool kScaled = true, kHasMin = false;
  static __device__ __forceinline__ float Code(uint32_t operand, int half) { return Bf16Half(operand, half); }
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
  template <class Payload>
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, const Payload&, int block) {
    return {.low = block == 0 ? LowHalf(h.scales.x) : HighHalf(h.scales.x),
            .high = block == 0 ? LowHalf(h.scales.y) : HighHalf(h.scales.y)};
  }
};

struct Q8_0Weights : ScaledBy32 {
  static constexpr TensorType kFormat = TensorType::kQ8_0;
  struct Payload {
    uint4 mmas[2];
  };
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {{Memory::Stream(payload + lane * 16), Memory::Stream(payload + 512 + lane * 16)}};
  }
  // Bytes i and i + 1 of `word` are q + 128; q fits the upper half of a float, which is a bf16.
  static __device__ __forceinline__ uint32_t Pair(uint32_t word, int i) {
    constexpr float kOffset = 8388608.0f + 128.0f;
    return __byte_perm(__float_as_uint(ByteAbove2To23(word, i) - kOffset),
                       __float_as_uint(ByteAbove2To23(word, i + 1) - kOffset), 0x7632u);
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
    const uint32_t low = WordOf<j % 2 * 2>(p.mmas[j / 2]), high = WordOf<j % 2 * 2 + 1>(p.mmas[j / 2]);
    a[0] = Pair(low, 0), a[1] = Pair(low, 2), a[2] = Pair(high, 0), a[3] = Pair(high, 2);
  }
};

struct Q4_0Weights : ScaledBy32 {
  static constexpr TensorType kFormat = TensorType::kQ4_0;
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
    for (int i = 0; i < 4; ++i) a[i] = Minus<128 + 8>(NibblePair(WordOf<j>(p.nibbles), i));
  }
};

struct Q5_0Weights : ScaledBy32 {
  static constexpr TensorType kFormat = TensorType::kQ5_0;
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
      const uint32_t above = Masked(bit < 4 ? p.fifth << (4 - bit) : p.fifth >> (bit - 4), 0x00100010u, kExponent7);
      a[i] = Minus<128 + 16>(NibblePair(WordOf<j>(p.nibbles), i, above));
    }
  }
};

// Nibbles 0..15 with a minimum a block. What goes in is 128 + q; the minimum takes the 128 back.
struct UnsignedNibbles : Quantised {
  static constexpr int kBlock = 32;
  static constexpr bool kHasMin = true;
  template <int j>
  static __device__ __forceinline__ void Operand(const uint4& nibbles, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = NibblePair(WordOf<j>(nibbles), i);
  }
  static __device__ __forceinline__ float Code(uint32_t operand, int half) { return Bf16Half(operand, half) - 128.0f; }
  // Of products.
  static __device__ __forceinline__ RowScales TakeBack(const RowScales& stored) {
    return {stored.low, stored.high, fmaf(-128.0f, stored.low, stored.low_min),
            fmaf(-128.0f, stored.high, stored.high_min)};
  }
};

struct Q4_1Weights : UnsignedNibbles {
  static constexpr TensorType kFormat = TensorType::kQ4_1;
  struct Header {
    uint4 scales_and_mins;
  };
  struct Payload {
    uint4 nibbles;
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte* header, int lane) {
    return {Memory::template Load<uint4>(header + lane / 4 * 16)};
  }
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {Memory::Stream(payload + lane * 16)};
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
    UnsignedNibbles::Operand<j>(p.nibbles, a);
  }
  static __device__ __forceinline__ RowScales StoredScales(const Header& h, const Payload&, int block) {
    const uint32_t low = WordOf(h.scales_and_mins, block), high = WordOf(h.scales_and_mins, 2 + block);
    return {LowHalf(low), LowHalf(high), HighHalf(low), HighHalf(high)};
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, const Payload& p, int block) {
    return TakeBack(StoredScales(h, p, block));
  }
};

struct Q4_KWeights : UnsignedNibbles {
  static constexpr TensorType kFormat = TensorType::kQ4_K;
  static constexpr int kGranule = 256;
  struct Header {
    uint2 d_and_dmin;  // of rows g, g + 8
  };
  struct Payload {
    uint4 nibbles;
    uint2 scales;  // of rows g, g + 8: two scales, two minima
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte* header, int lane) {
    return {Memory::template Load<uint2>(header + lane / 4 * 8)};
  }
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {Memory::Stream(payload + lane * 16), Memory::template Load<uint2>(payload + 512 + lane / 4 * 8)};
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
    UnsignedNibbles::Operand<j>(p.nibbles, a);
  }
  // d times byte i: 2^23 d is exact, and so is the product before fmaf rounds.
  static __device__ __forceinline__ float TimesByte(float d, uint32_t word, int i) {
    return fmaf(d, ByteAbove2To23(word, i), -8388608.0f * d);
  }
  static __device__ __forceinline__ RowScales StoredScales(const Header& h, const Payload& p, int block) {
    return {TimesByte(LowHalf(h.d_and_dmin.x), p.scales.x, block), TimesByte(LowHalf(h.d_and_dmin.y), p.scales.y, block),
            TimesByte(-HighHalf(h.d_and_dmin.x), p.scales.x, 2 + block),
            TimesByte(-HighHalf(h.d_and_dmin.y), p.scales.y, 2 + block)};
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, const Payload& p, int block) {
    return TakeBack(StoredScales(h, p, block));
  }
};

struct Q6_KWeights : Quantised {
  static constexpr TensorType kFormat = TensorType::kQ6_K;
  static constexpr int kGranule = 256;
  static constexpr int kBlock = 16;
  struct Header {
    uint32_t d;  // of rows g, g + 8
  };
  struct Payload {
    uint4 nibbles;
    uint2 upper;
    uint2 scales;  // of rows g, g + 8: four bytes of scale + 128
  };
  template <class Memory>
  static __device__ __forceinline__ Header LoadHeader(const std::byte* header, int lane) {
    return {Memory::template Load<uint32_t>(header + lane / 4 * 4)};
  }
  template <class Memory>
  static __device__ __forceinline__ Payload LoadPayload(const std::byte* payload, int lane) {
    return {Memory::Stream(payload + lane * 16), Memory::template Load<uint2>(payload + 512 + lane * 8),
            Memory::template Load<uint2>(payload + 768 + lane / 4 * 8)};
  }
  template <int j>
  static __device__ __forceinline__ void Operand(const Payload& p, uint32_t (&a)[4]) {
    const uint32_t word = j < 2 ? p.upper.x : p.upper.y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int bit = 8 * (j % 2) + 2 * i;
      const uint32_t above = Masked(bit < 4 ? word << (4 - bit) : word >> (bit - 4), 0x00300030u, kExponent7);
      a[i] = Minus<128 + 32>(NibblePair(WordOf<j>(p.nibbles), i, above));
    }
  }
  static __device__ __forceinline__ RowScales ScalesOf(const Header& h, const Payload& p, int block) {
    constexpr float kOffset = 8388608.0f + 128.0f;
    return {.low = LowHalf(h.d) * (ByteAbove2To23(p.scales.x, block) - kOffset),
            .high = HighHalf(h.d) * (ByteAbove2To23(p.scales.y, block) - kOffset)};
  }
};

// ---------------------------------------------------------------- all of them

template <class... F>
struct FormatList {};
using TileFormats = FormatList<BF16Weights, F16Weights, Q8_0Weights, Q4_0Weights, Q4_1Weights, Q5_0Weights, Q4_KWeights,
                               Q6_KWeights>;

// Calls visit(F()) of the struct of `format`, if there is one.
template <class Visit, class... F>
void VisitFormat(FormatList<F...>, TensorType format, const Visit& visit) {
  ((format == F::kFormat ? visit(F()) : void()), ...);
}

template <class F>
constexpr bool MatchesItsRow() {
  const TensorFormat& row = FormatOf(F::kFormat);
  const BlockCodes& codes = row.codes;
  if (codes.bits == 0) return !F::kScaled && !F::kHasMin && F::kBlock == 16 && F::kGranule == 8;
  return F::kScaled && F::kHasMin == codes.affine && F::kBlock == codes.scale_length &&
         F::kGranule == row.stored.block_elems;
}

// Whether each type has as many structs as its row says, and no struct contradicts it. f32 has no tiles.
template <class... F>
constexpr bool AllMatchTheirRows(FormatList<F...>) {
  for (const TensorFormat& row : kTensorFormats) {
    const bool has_tiles = HasGpuForm(row.type) && row.type != TensorType::kF32;
    if (((F::kFormat == row.type ? 1 : 0) + ...) != (has_tiles ? 1 : 0)) return false;
  }
  return (MatchesItsRow<F>() && ...);
}
static_assert(AllMatchTheirRows(TileFormats()));

// ---------------------------------------------------------------- single weights

// Scales and minima as they are stored. Products take those of ScalesOf, which have the 128 of their operands in the
// minimum already.
template <class F>
__device__ __forceinline__ RowScales StoredScales(const typename F::Header& header, const typename F::Payload& payload,
                                                  int block) {
  if constexpr (F::kHasMin) {
    return F::StoredScales(header, payload, block);
  } else {
    return F::ScalesOf(header, payload, block);
  }
}

// The weight that half an operand's register stands for, as engine/base/dequantize.h gives it.
template <class F>
__device__ __forceinline__ float StoredWeight(uint32_t operand, int half, float scale, float min) {
  const float code = F::Code(operand, half);
  if constexpr (F::kHasMin) return __fadd_rn(__fmul_rn(scale, code), min);
  if constexpr (F::kScaled) return scale * code;
  return code;
}

}  // namespace sluice::cuda
