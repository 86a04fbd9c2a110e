// The kernels in vectors, one source for both widths, included once by each of kernels_{avx512,avx2,avx2_vnni}.cc.
// Everything has internal linkage and nothing here uses inline library code: the linker may keep any one copy of such
// code, and that could be this file's, with instructions that the machine lacks.
//
// Mapping: a tile is 32 lanes x R activation rows (two vectors at a time, so AVX2 passes twice over the panel) with
// codes, dot products and sums in registers. R rows share each unpacked code. Per block and row: 8 dot products per
// vector and digit, one conversion, two or three float operations.
//
//                  w0: codes of 16 lanes x 4 k      w1: of the next 16 (AVX-512; on AVX2 8 and 8)
//                | lane 0 | lane 1 | .. | 15 |    | 16 | .. | 31 |     one 64-byte group each
//   x of row 0      dot[..][0][0]                    dot[..][0][1]     the row's 4 x, the same for all lanes
//   x of row 1      dot[..][1][0]                    dot[..][1][1]
//
// Worked example: one lane of a Q4_0 panel, scale 0.5, times one row. All codes and x but these are 8 and 0.
//
//   k                           0      1      2      3
//   code                        9      8      5     12
//   w = 0.5 (code - 8)        0.5      0   -1.5      2
//   x                           1     -2    0.5      4     w . x = 0.5 - 0.75 + 8 = 7.75
//   bytes 4 lane .. of block 0x89   0x88   0x85   0x8c     low nibbles: Codes<0>, k = 0 .. 3; high: Codes<4>, 16 .. 19
//
//   One digit (int8): scale 4/127. x / scale is 31.75, -63.5, 15.875, 127.
//   digits[0]                  32    -64     16    127     neg_sum = -111
//   Dot4: 9*32 - 8*64 + 5*16 + 12*127 = 1380, upon -111 * 8 (zero) = -888: 492
//   acc = 492 * (0.5 * 4/127) = 7.748
//
//   Two digits (int16): scale 4/16256. x / scale is 4064, -8128, 2032, 16256, q = 128 * digits[0] + digits[1].
//   digits[0]                  32    -63     16    127     Dot4: 288 - 504 + 80 + 1524 = 1388
//   digits[1]                 -32    -64    -16      0     Dot4: -880, upon -14224 * 8 = -113792: -114672
//   acc = (128 * 1388 - 114672) * (0.5 * 4/16256) = 62992 * 2/16256 = 7.75
#pragma once

#include "engine/ops/cpu/linear_kernel_tables.h"
#ifdef __AVX512VNNI__
#include "engine/ops/cpu/simd_avx512.h"
#else
#include "engine/ops/cpu/simd_avx2.h"
#endif

namespace sluice {
namespace {

template <TensorType Packed>
constexpr PackedFormat kFormat = PackedFormatOf(Packed);

// Codes k = 4 Group .. 4 Group + 3 of lanes first_lane .. first_lane + kLanes - 1: byte t of a lane's 32 bits is k + t.
template <TensorType Packed, int Group>
[[gnu::always_inline]] inline Int Codes(const uint8_t* block, int first_lane) {
  constexpr int kBits = kFormat<Packed>.code_bits;
  if constexpr (kBits == 8) {
    return Load(block + Group * 128 + first_lane * 4);
  } else {
    constexpr int kPair = Group % 4, kHigh = Group / 4;
    const Int stored = Load(block + kPair * 128 + first_lane * 4);
    const Int nibbles = And(kHigh ? ShiftRight16<4>(stored) : stored, Set8(15));
    if constexpr (kBits == 5) {
      return AddFifthBits(nibbles, block + 512 + (kPair * 2 + first_lane / 16) * 16 + kHigh * 8 + first_lane % 16 / 2);
    } else if constexpr (kBits == 6) {
      const Int upper = Load(block + 512 + kHigh * 128 + first_lane * 4);
      Int bits;  // 2 kPair, 2 kPair + 1 go to 4, 5
      if constexpr (kPair == 0) bits = ShiftLeft16<4>(upper);
      if constexpr (kPair == 1) bits = ShiftLeft16<2>(upper);
      if constexpr (kPair == 2) bits = upper;
      if constexpr (kPair == 3) bits = ShiftRight16<2>(upper);
      return Or(nibbles, And(bits, Set8(0x30)));
    } else if constexpr (kFormat<Packed>.fp4) {
      return LookUp(kMxfp4Codes, nibbles);
    } else {
      return nibbles;
    }
  }
}

// Scales of kLanes lanes of a block, for its sub-block `sub`.
template <TensorType Packed>
[[gnu::always_inline]] inline Float BlockScale(const uint8_t* super, const uint8_t* block, int lane, int sub) {
  constexpr PackedFormat kF = kFormat<Packed>;
  const uint8_t* scales = block + kF.code_bytes;
  if constexpr (kF.fp4) {
    return LoadBf16(scales + lane * 2);
  } else if constexpr (!kF.two_level) {
    return LoadF16(scales + lane * 2);
  } else {
    const Float d = LoadF16(super + lane * 2);
    return Mul(d, kF.affine ? LoadU8(scales + lane) : LoadS8(scales + sub * 32 + lane));
  }
}

template <TensorType Packed>
[[gnu::always_inline]] inline Float BlockOffset(const uint8_t* super, const uint8_t* block, int lane) {
  constexpr PackedFormat kF = kFormat<Packed>;
  const uint8_t* scales = block + kF.code_bytes;
  if constexpr (!kF.two_level) {
    return LoadF16(scales + 64 + lane * 2);
  } else {
    return Negate(Mul(LoadF16(super + 64 + lane * 2), LoadU8(scales + 32 + lane)));
  }
}

[[gnu::always_inline]] inline PrefetchAhead Prefetch(PrefetchAhead ahead) {
  for (int i = 0; i < ahead.lines; ++i) _mm_prefetch(reinterpret_cast<const char*>(ahead.data + i * 64), _MM_HINT_T0);
  return {ahead.data + ahead.lines * 64, ahead.lines};
}

template <int Digits>
[[gnu::always_inline]] inline const ActivationBlock<Digits>& Row(const uint8_t* activations, size_t stride_bytes,
                                                                 int r) {
  return *reinterpret_cast<const ActivationBlock<Digits>*>(activations + r * stride_bytes);
}

// dot[digit][r][v] += codes of Group times the digits of row r.
template <TensorType Packed, int Digits, int R, int Group>
[[gnu::always_inline]] inline void DotGroup(const uint8_t* block, int lane, const uint8_t* activations,
                                            size_t stride_bytes, Int (&dot)[Digits][R][2]) {
  constexpr int kBits = kFormat<Packed>.code_bits;
  const Int w0 = Codes<Packed, Group>(block, lane), w1 = Codes<Packed, Group>(block, lane + kLanes);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int digit = 0; digit < Digits; ++digit) {
      int four;
      __builtin_memcpy(&four, Row<Digits>(activations, stride_bytes, r).digits[digit] + Group * 4, 4);
      const Int x = Set32(four);
      dot[digit][r][0] = Dot4<kBits>(dot[digit][r][0], w0, x);
      dot[digit][r][1] = Dot4<kBits>(dot[digit][r][1], w1, x);
    }
  }
}

// The dot products of a sub-block. Those of symmetric types start at -zero * sum(q) instead of 0: exact, and no float
// operation. Low and high nibbles of one load go together.
template <TensorType Packed, int Digits, int R, int Sub>
[[gnu::always_inline]] inline void DotSubBlock(const uint8_t* block, int lane, const uint8_t* activations,
                                               size_t stride_bytes, Int (&dot)[Digits][R][2]) {
  constexpr PackedFormat kF = kFormat<Packed>;
  constexpr int kZero = kSignedCodes8 && kF.code_bits == 8 ? 0 : kF.zero;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    dot[0][r][0] = dot[0][r][1] = Set32(0);
    if constexpr (kZero != 0) {
      const ActivationBlock<Digits>& x = Row<Digits>(activations, stride_bytes, r);
      const int neg_sum = kF.scales_per_block == 1 ? x.neg_sum : Sub == 0 ? x.neg_sum_low : x.neg_sum - x.neg_sum_low;
      dot[Digits - 1][r][0] = dot[Digits - 1][r][1] = Set32(neg_sum * kZero);
    } else {
      dot[Digits - 1][r][0] = dot[Digits - 1][r][1] = Set32(0);
    }
  }
  if constexpr (kF.scales_per_block == 2) {
    DotGroup<Packed, Digits, R, 4 * Sub + 0>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 4 * Sub + 1>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 4 * Sub + 2>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 4 * Sub + 3>(block, lane, activations, stride_bytes, dot);
  } else {
    DotGroup<Packed, Digits, R, 0>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 4>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 1>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 5>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 2>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 6>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 3>(block, lane, activations, stride_bytes, dot);
    DotGroup<Packed, Digits, R, 7>(block, lane, activations, stride_bytes, dot);
  }
}

// acc[r][v] += scale * x.scale * dot [+ offset * x.scaled_sum]
template <TensorType Packed, int Digits, int R, int Sub>
[[gnu::always_inline]] inline void AccumulateSubBlock(const uint8_t* super, const uint8_t* block, int lane,
                                                      const uint8_t* activations, size_t stride_bytes,
                                                      Float (&acc)[R][2]) {
  constexpr PackedFormat kF = kFormat<Packed>;
  static_assert(!kF.affine || kF.scales_per_block == 1);
  Int dot[Digits][R][2];
  DotSubBlock<Packed, Digits, R, Sub>(block, lane, activations, stride_bytes, dot);
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const Float scale = BlockScale<Packed>(super, block, lane + v * kLanes, Sub);
    const Float offset = kF.affine ? BlockOffset<Packed>(super, block, lane + v * kLanes) : Set(0);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const ActivationBlock<Digits>& x = Row<Digits>(activations, stride_bytes, r);
      const Int sum = Digits == 2 ? JoinDigits(dot[0][r][v], dot[Digits - 1][r][v]) : dot[0][r][v];
      acc[r][v] = Fma(ToFloat(sum), Mul(scale, Set(x.scale)), acc[r][v]);
      if constexpr (kF.affine) acc[r][v] = Fma(offset, Set(x.scaled_sum), acc[r][v]);
    }
  }
}

// Lanes lane .. lane + 2 kLanes - 1 of a panel times R rows.
template <TensorType Packed, int Digits, int R>
void IntegerTileOf(const uint8_t* panel, int64_t k, int lane, const uint8_t* activations, size_t stride_bytes,
                   float* out, PrefetchAhead ahead) {
  constexpr PackedFormat kF = kFormat<Packed>;
  Float acc[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = Set(0);
  const uint8_t* super = panel;
  const uint8_t* block = panel;
  const int64_t num_blocks = k / kBlock;
  for (int64_t b = 0; b < num_blocks; ++b, block += kF.block_bytes, activations += sizeof(ActivationBlock<Digits>)) {
    if constexpr (kF.two_level) {
      if (b % (kSuperBlock / kBlock) == 0) {
        super = block;
        block += kF.super_bytes;
      }
    }
    ahead = Prefetch(ahead);
    AccumulateSubBlock<Packed, Digits, R, 0>(super, block, lane, activations, stride_bytes, acc);
    if constexpr (kF.scales_per_block == 2) {
      AccumulateSubBlock<Packed, Digits, R, 1>(super, block, lane, activations, stride_bytes, acc);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Store(out + r * kPanelRows + lane, acc[r][0]);
    Store(out + r * kPanelRows + lane + kLanes, acc[r][1]);
  }
}

template <TensorType Packed, int Digits, int R = kMaxIntegerRows<Digits>>
void IntegerTile(const uint8_t* panel, int64_t k, const uint8_t* activations, size_t stride_bytes, int rows, float* out,
                 PrefetchAhead ahead) {
  if constexpr (R > 1) {
    if (rows < R) return IntegerTile<Packed, Digits, R - 1>(panel, k, activations, stride_bytes, rows, out, ahead);
  }
  for (int lane = 0; lane < kPanelRows; lane += 2 * kLanes) {
    IntegerTileOf<Packed, Digits, R>(panel, k, lane, activations, stride_bytes, out,
                                     lane == 0 ? ahead : PrefetchAhead{});
  }
}

// ---------------------------------------------------------------- f32 activations

template <int R>
[[gnu::always_inline]] inline void FmaRows(Float w0, Float w1, const uint8_t* x, size_t stride_bytes,
                                           Float (&acc)[R][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Float xr = Set(*reinterpret_cast<const float*>(x + r * stride_bytes));
    acc[r][0] = Fma(w0, xr, acc[r][0]);
    acc[r][1] = Fma(w1, xr, acc[r][1]);
  }
}

// One block of weights as floats: exactly the values of the stored tensor.
template <TensorType Packed>
struct BlockFloats {
  Float scale[2][2], offset[2];  // [sub-block][v], [v]

  [[gnu::always_inline]] BlockFloats(const uint8_t* super, const uint8_t* block, int lane) {
    constexpr PackedFormat kF = kFormat<Packed>;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
#pragma GCC unroll 2
      for (int sub = 0; sub < kF.scales_per_block; ++sub) {
        scale[sub][v] = BlockScale<Packed>(super, block, lane + v * kLanes, sub);
      }
      offset[v] = kF.affine ? BlockOffset<Packed>(super, block, lane + v * kLanes) : Set(0);
    }
  }

  // Code `t` of the four in `codes`.
  [[gnu::always_inline]] Float Value(Int codes, int t, int sub, int v) const {
    constexpr PackedFormat kF = kFormat<Packed>;
    const Int code = And(ShiftRight32(codes, 8 * t), Set32(255));
    const Int centered = kF.zero != 0 ? Sub32(code, Set32(kF.zero)) : code;
    const Float scaled = Mul(scale[sub][v], ToFloat(centered));
    return kF.affine ? Add(scaled, offset[v]) : scaled;
  }
};

template <TensorType Packed, int R, int Group = 0>
[[gnu::always_inline]] inline void FmaBlock(const BlockFloats<Packed>& floats, const uint8_t* block, int lane,
                                            const uint8_t* x, size_t stride_bytes, Float (&acc)[R][2]) {
  constexpr PackedFormat kF = kFormat<Packed>;
  constexpr int kSub = kF.scales_per_block == 2 ? Group / 4 : 0;
  const Int c0 = Codes<Packed, Group>(block, lane), c1 = Codes<Packed, Group>(block, lane + kLanes);
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    FmaRows<R>(floats.Value(c0, t, kSub, 0), floats.Value(c1, t, kSub, 1), x + (Group * 4 + t) * sizeof(float),
               stride_bytes, acc);
  }
  if constexpr (Group < 7) FmaBlock<Packed, R, Group + 1>(floats, block, lane, x, stride_bytes, acc);
}

template <TensorType Packed>
[[gnu::always_inline]] inline Float LoadPlain(const uint8_t* p, int lane) {
  if constexpr (Packed == TensorType::kF32) return LoadFloat(p + lane * 4);
  if constexpr (Packed == TensorType::kF16) return LoadF16(p + lane * 2);
  if constexpr (Packed == TensorType::kBF16) return LoadBf16(p + lane * 2);
}

template <TensorType Packed, int R>
void FloatTileOf(const uint8_t* panel, int64_t k, int lane, const uint8_t* x, size_t stride_bytes, float* out,
                 PrefetchAhead ahead) {
  constexpr PackedFormat kF = kFormat<Packed>;
  Float acc[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = Set(0);
  const uint8_t* super = panel;
  const uint8_t* p = panel;
  for (int64_t i = 0; i < k; i += kBlock, x += kBlock * sizeof(float)) {
    ahead = Prefetch(ahead);
    if constexpr (kF.quantized()) {
      if constexpr (kF.two_level) {
        if (i % kSuperBlock == 0) {
          super = p;
          p += kF.super_bytes;
        }
      }
      FmaBlock<Packed, R>(BlockFloats<Packed>(super, p, lane), p, lane, x, stride_bytes, acc);
      p += kF.block_bytes;
    } else {
      const int64_t count = k - i < kBlock ? k - i : kBlock;
      for (int64_t j = 0; j < count; ++j, p += kPanelRows * kF.float_bytes) {
        FmaRows<R>(LoadPlain<Packed>(p, lane), LoadPlain<Packed>(p, lane + kLanes), x + j * sizeof(float), stride_bytes,
                   acc);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Store(out + r * kPanelRows + lane, acc[r][0]);
    Store(out + r * kPanelRows + lane + kLanes, acc[r][1]);
  }
}

// Tiles of 8, 4, 2 and 1 rows.
template <TensorType Packed, int R = kMaxFloatRows>
void FloatTile(const uint8_t* panel, int64_t k, const uint8_t* activations, size_t stride_bytes, int rows, float* out,
               PrefetchAhead ahead) {
  if (rows >= R) {
    for (int lane = 0; lane < kPanelRows; lane += 2 * kLanes) {
      FloatTileOf<Packed, R>(panel, k, lane, activations, stride_bytes, out, lane == 0 ? ahead : PrefetchAhead{});
    }
    rows -= R;
    out += R * kPanelRows;
    activations += R * stride_bytes;
    ahead = {};
  }
  if constexpr (R > 1) {
    if (rows > 0) FloatTile<Packed, R / 2>(panel, k, activations, stride_bytes, rows, out, ahead);
  }
}

// ---------------------------------------------------------------- activations to blocks

template <int Digits>
void Quantize(const float* x, int64_t k, void* blocks) {
  constexpr float kRange = kActivationRange<Digits>;
  constexpr float kSmallestNormal = 0x1p-126f;
  auto* out = static_cast<ActivationBlock<Digits>*>(blocks);
  for (int64_t b = 0; b < k / kBlock; ++b, x += kBlock, ++out) {
    const uint32_t largest = LargestMagnitude(x);
    float magnitude;
    __builtin_memcpy(&magnitude, &largest, sizeof(magnitude));
    if (__builtin_expect(largest >= 0x7f800000u || magnitude < kRange * kSmallestNormal, 0)) {
      *out = {};
      if (largest >= 0x7f800000u) out->scale = out->scaled_sum = __builtin_nanf("");
      continue;
    }
    const Block32 q = Round(x, kRange / magnitude);
    const int sum = Sum(q);
    out->scale = magnitude / kRange;
    out->scaled_sum = out->scale * static_cast<float>(sum);
    out->neg_sum = -sum;
    out->neg_sum_low = -SumLow(q);
    if constexpr (Digits == 2) {
      const Block32 high = HighDigit(q);
      StoreBytes(out->digits[0], high);
      StoreBytes(out->digits[1], LowDigit(q, high));
    } else {
      StoreBytes(out->digits[0], q);
    }
  }
}

struct Tiles {
  template <TensorType type, int digits>
  static constexpr TileFunction kInteger = IntegerTile<type, digits>;
  template <TensorType type>
  static constexpr TileFunction kFloat = FloatTile<type>;
};

constexpr LinearKernels MakeKernels(Isa isa) {
  return WithTiles<Tiles>({.isa = isa,
                           .max_rows = {kMaxIntegerRows<1>, kMaxIntegerRows<2>, kMaxFloatRows},
                           .tile = {},
                           .quantize = {Quantize<1>, Quantize<2>, nullptr}});
}

}  // namespace
}  // namespace sluice
