#include "tests/cuda_on_cpu/matrix.h"

#include <bit>
#include <cstring>

#include "tests/cuda_on_cpu/warp.h"

namespace sluice::cuda_on_cpu {
namespace {

using Vec8 = float __attribute__((vector_size(32)));

float HalfToFloat(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // As if of f32's exponent range, times the difference; exact for subnormals too.
  return std::bit_cast<float>(sign | magnitude << 13) * 0x1p112f;
}

template <MatrixElement element>
float ToFloat(uint32_t bits16) {
  return element == MatrixElement::kBf16 ? std::bit_cast<float>(bits16 << 16) : HalfToFloat(bits16);
}

struct Fragments {
  uint32_t a[4];
  uint32_t b[2];
};

struct Tile {
  float a[16][16];  // [row][k]
  Vec8 b[16];       // [k][column]
  Vec8 d[16];       // [row][column]
};

// The same bits with and without AVX: neither fuses a product and a sum.
inline __attribute__((always_inline)) void MultiplyTile(Tile& tile) {
  constexpr int kRows = 4;  // sums in flight
  for (int row = 0; row < 16; row += kRows) {
    Vec8 sum[kRows];
    for (int i = 0; i < kRows; ++i) sum[i] = tile.d[row + i];
    for (int k = 0; k < 16; ++k)
      for (int i = 0; i < kRows; ++i) sum[i] += tile.a[row + i][k] * tile.b[k];
    for (int i = 0; i < kRows; ++i) tile.d[row + i] = sum[i];
  }
}
__attribute__((target("avx2"))) void MultiplyTileAvx2(Tile& tile) { MultiplyTile(tile); }
void MultiplyTilePortable(Tile& tile) { MultiplyTile(tile); }

template <MatrixElement element>
void ComputeProduct(const WarpOperation& warp) {
  Tile tile;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const Fragments& in = warp.operand<Fragments>(lane);
    const unsigned g = lane / 4, k = lane % 4 * 2;
    for (unsigned i = 0; i < 4; ++i) {
      tile.a[g + i % 2 * 8][k + i / 2 * 8] = ToFloat<element>(in.a[i] & 0xffffu);
      tile.a[g + i % 2 * 8][k + i / 2 * 8 + 1] = ToFloat<element>(in.a[i] >> 16);
    }
    for (unsigned i = 0; i < 2; ++i) {
      tile.b[k + i * 8][g] = ToFloat<element>(in.b[i] & 0xffffu);
      tile.b[k + i * 8 + 1][g] = ToFloat<element>(in.b[i] >> 16);
    }
    const auto& d = warp.result<float[4]>(lane);
    for (unsigned i = 0; i < 4; ++i) tile.d[g + i / 2 * 8][k + i % 2] = d[i];
  }
  static const bool avx2 = __builtin_cpu_supports("avx2");
  avx2 ? MultiplyTileAvx2(tile) : MultiplyTilePortable(tile);
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned g = lane / 4, k = lane % 4 * 2;
    auto& d = warp.result<float[4]>(lane);
    for (unsigned i = 0; i < 4; ++i) d[i] = tile.d[g + i / 2 * 8][k + i % 2];
  }
}

struct Row {
  uint16_t elements[8];
};

template <int num, bool transpose>
void ComputeLoad(const WarpOperation& warp) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    auto& registers = warp.result<uint32_t[num]>(lane);
    for (unsigned i = 0; i < num; ++i) {
      const auto element = [&](unsigned j) -> uint32_t {
        const unsigned row = transpose ? lane % 4 * 2 + j : lane / 4;
        const unsigned column = transpose ? lane / 4 : lane % 4 * 2 + j;
        return warp.operand<Row>(i * 8 + row).elements[column];
      };
      registers[i] = element(0) | element(1) << 16;
    }
  }
}

}  // namespace

template <int num, bool transpose>
void MeetToLoadMatrices(uint32_t (&matrices)[num], const void* row, const SourceLine& where) {
  MeetInWarp(kAllLanes, row, &matrices, &ComputeLoad<num, transpose>, where);
}
template void MeetToLoadMatrices<4, false>(uint32_t (&)[4], const void*, const SourceLine&);
template void MeetToLoadMatrices<4, true>(uint32_t (&)[4], const void*, const SourceLine&);

template <MatrixElement element>
void MultiplyMatrices(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const SourceLine& where) {
  Fragments fragments;
  std::memcpy(fragments.a, a, sizeof(a));
  std::memcpy(fragments.b, b, sizeof(b));
  MeetInWarp(kAllLanes, &fragments, &d, &ComputeProduct<element>, where);
}
template void MultiplyMatrices<MatrixElement::kBf16>(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2],
                                                     const SourceLine&);
template void MultiplyMatrices<MatrixElement::kF16>(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2],
                                                    const SourceLine&);

}  // namespace sluice::cuda_on_cpu
