#include "engine/ops/cuda/kernels/weight_packing.h"

#include <array>
#include <cstring>
#include <vector>

#include "engine/base/by_tensor_type.h"
#include "engine/base/check.h"
#include "engine/base/tensor_format.h"
#include "engine/ops/cuda/kernels/weight_layout.h"

namespace sluice::cuda {
namespace {

void CheckShape(TensorType format, int32_t n, int32_t k, bool gated) {
  SLUICE_CHECK(n >= 0 && k >= 0 && !(gated && n % 2 != 0));
  const int step = GetTensorTypeInfo(format).block_elems;
  SLUICE_CHECK(format == TensorType::kF32 || k % (step == 1 ? 8 : step) == 0);
}

// Four values of a row, of consecutive k from a multiple of 4 on, in the bytes of a word, the first in the lowest. They
// lie in one lane's registers reg (0, 1) and reg + 2 (2, 3), reg being 0 for rows below 8 and else 1.
uint32_t Load4(const uint8_t* bytes) {
  uint32_t four;
  std::memcpy(&four, bytes, 4);
  return four;
}

// Blocks of 32 with nibbles: byte l has value l in its low half and value l + 16 in its high half.
uint32_t Nibbles(const uint8_t* nibbles, int l) { return Load4(nibbles + l % 16) >> (l < 16 ? 0 : 4) & 0x0f0f0f0f; }

// A K tile while it is filled, from zeros. `k` counts from the tile's first value, and is a multiple of 4.
class TileWriter {
 public:
  TileWriter(const TileLayout& layout, std::byte* tile) : layout_(layout), tile_(tile) {}

  std::byte* header() { return tile_; }
  // Of the step that has `k`.
  std::byte* Payload(int k) { return tile_ + layout_.header_bytes + k / kStepK * layout_.payload_bytes; }

  void Put8(int r, int k, const uint8_t* values) {
    const FragmentPlace p = FragmentPlaceOf(r, k % kStepK);
    std::byte* registers = Payload(k) + (p.mma / 2 * 32 + p.lane) * 16 + p.mma % 2 * 8 + p.reg * 2;
    const uint32_t four = Load4(values) ^ 0x80808080;
    const uint16_t halves[2] = {static_cast<uint16_t>(four), static_cast<uint16_t>(four >> 16)};
    std::memcpy(registers, &halves[0], 2);
    std::memcpy(registers + 4, &halves[1], 2);
  }

  // Values below 16.
  void Put4(int r, int k, uint32_t v) {
    const FragmentPlace p = FragmentPlaceOf(r, k % kStepK);
    const uint32_t bits = (v & 0xff0000ff) | (v & 0xff00) << 8 | (v & 0xff0000) >> 8;
    OrWord(Payload(k) + (p.lane * 4 + p.mma) * 4, bits << 4 * p.reg);
  }

  // Values below 2.
  void PutFifth(int r, int k, uint32_t v) {
    const FragmentPlace p = FragmentPlaceOf(r, k % kStepK);
    const uint32_t bits = (v & 1) | (v >> 8 & 1) << 16 | (v >> 16 & 1) << 2 | (v >> 24) << 18;
    OrWord(Payload(k) + 512 + p.lane * 4, bits << (4 * p.mma + p.reg));
  }

  // Values below 4.
  void PutFifthAndSixth(int r, int k, uint32_t v) {
    const FragmentPlace p = FragmentPlaceOf(r, k % kStepK);
    const uint32_t bits = (v & 3) | (v >> 8 & 3) << 16 | (v >> 16 & 3) << 4 | (v >> 24) << 20;
    OrWord(Payload(k) + 512 + (p.lane * 2 + p.mma / 2) * 4, bits << (8 * (p.mma % 2) + 2 * p.reg));
  }

 private:
  static void OrWord(std::byte* at, uint32_t bits) {
    uint32_t word;
    std::memcpy(&word, at, 4);
    word |= bits;
    std::memcpy(at, &word, 4);
  }

  const TileLayout layout_;
  std::byte* const tile_;
};

// Of a header or a row of scales: where row r of the tile has its `bytes`.
int RowPlace(int r, int bytes) { return (r % 8 * 2 + r / 8) * bytes; }

// A stored block of row r, the one with index `block` in the tile. This is for one-level types: d, [m], [fifth bits],
// codes.
template <TensorType format>
void PackBlock(const uint8_t* b, int r, int block, TileWriter& tile) {
  constexpr BlockCodes kCodes = FormatOf(format).codes;
  static_assert(!kCodes.two_level && !kCodes.fp4 && kCodes.bits != 6, "the type needs a PackBlock of its own");
  constexpr int kScaleBytes = kCodes.affine ? 4 : 2;
  std::memcpy(tile.header() + RowPlace(r, 2 * kScaleBytes) + block * kScaleBytes, b, kScaleBytes);
  b += kScaleBytes;
  for (int l = 0; l < 32; l += 4) {
    const int k = block * 32 + l;
    if constexpr (kCodes.bits == 8) {
      tile.Put8(r, k, b + l);
    } else if constexpr (kCodes.bits == 5) {
      const uint32_t high = Load4(b) >> l;
      tile.Put4(r, k, Nibbles(b + 4, l));
      tile.PutFifth(r, k, (high & 1) | (high & 2) << 7 | (high & 4) << 14 | (high & 8) << 21);
    } else {
      tile.Put4(r, k, Nibbles(b, l));
    }
  }
}

// The 6-bit scale or (minima: true) minimum of sub-block j of Q4_K: eight of each in 12 bytes.
uint8_t SixBits(const uint8_t* s, int j, bool minima) {
  const int at = minima ? 4 : 0;
  if (j < 4) return s[at + j] & 63;
  return (s[j + 4] >> at & 15) | s[at + j - 4] >> 6 << 4;
}

template <>
void PackBlock<TensorType::kQ4_K>(const uint8_t* b, int r, int, TileWriter& tile) {
  std::memcpy(tile.header() + RowPlace(r, 4), b, 4);
  for (int block = 0; block < 8; ++block) {
    std::byte* scales = tile.Payload(block * 32) + 512 + RowPlace(r, 4) + block % 2;
    scales[0] = std::byte(SixBits(b + 4, block, false));
    scales[2] = std::byte(SixBits(b + 4, block, true));
  }
  for (int k = 0; k < 256; k += 4) {
    tile.Put4(r, k, Load4(b + 16 + k / 64 * 32 + k % 32) >> (k / 32 % 2 * 4) & 0x0f0f0f0f);
  }
}

template <>
void PackBlock<TensorType::kQ6_K>(const uint8_t* b, int r, int, TileWriter& tile) {
  std::memcpy(tile.header() + RowPlace(r, 2), b + 208, 2);
  for (int block = 0; block < 16; ++block)
    tile.Payload(block * 16)[768 + RowPlace(r, 4) + block % 4] = std::byte(b[192 + block] ^ 0x80);
  for (int k = 0; k < 256; k += 4) {
    const int half = k / 128, plane = k / 32 % 4, l = k % 32;
    const uint32_t low = Load4(b + 64 * half + 32 * (plane % 2) + l) >> (plane / 2 * 4) & 0x0f0f0f0f;
    const uint32_t high = Load4(b + 128 + 32 * half + l) >> (2 * plane) & 0x03030303;
    tile.Put4(r, k, low);
    tile.PutFifthAndSixth(r, k, high);
  }
}

// Row r of a tile, from the file's bytes at `source`: `valid` values of k, the others are padding.
using TileRowPacker = void (*)(const uint8_t* source, int r, int valid, TileWriter& tile);

template <TensorType format>
void PackTileRow(const uint8_t* source, int r, int valid, TileWriter& tile) {
  constexpr TensorTypeInfo kStored = FormatOf(format).stored;
  for (int block = 0; block < valid / kStored.block_elems; ++block)
    PackBlock<format>(source + block * kStored.block_bytes, r, block, tile);
}

constexpr auto kTileRowPackers = MakeByTensorType<TileRowPacker>([]<TensorType format>() -> TileRowPacker {
  if constexpr (HasGpuForm(format) && FormatOf(format).codes.bits != 0) return PackTileRow<format>;
  return nullptr;
});

using TileRows = std::span<const uint8_t* const, kTileRows>;

void PackBlocks(TensorType format, int32_t k, TileRows rows, std::byte* packed) {
  const TensorTypeInfo& stored = GetTensorTypeInfo(format);
  const TileLayout layout = TileLayoutOf(format);
  std::memset(packed, 0, static_cast<size_t>(RowTileBytes(format, k)));
  for (int32_t k0 = 0; k0 < k; k0 += layout.k(), packed += layout.bytes()) {
    TileWriter tile(layout, packed);
    for (int r = 0; r < kTileRows; ++r) {
      if (rows[r] == nullptr) continue;
      const uint8_t* source = rows[r] + int64_t{k0} / stored.block_elems * stored.block_bytes;
      kTileRowPackers[format](source, r, k - k0 < layout.k() ? k - k0 : layout.k(), tile);
    }
  }
}

// A lane's 16 bytes of an mma hold four values of row g and four of row g + 8, in pairs that take turns.
void Pack16(int32_t k, TileRows rows, std::byte* packed) {
  constexpr int kFours = kStepK / 4, kBytes = 2 * kTileRows * kStepK;
  const int32_t steps = (k + kStepK - 1) / kStepK;
  if (k % kStepK != 0) std::memset(packed + int64_t{steps - 1} * kBytes, 0, kBytes);
  for (int g = 0; g < 8; ++g) {
    for (int32_t four = 0; four < k / 4; ++four) {
      uint32_t low[2] = {}, high[2] = {};
      if (rows[g] != nullptr) std::memcpy(low, rows[g] + int64_t{four} * 8, 8);
      if (rows[g + 8] != nullptr) std::memcpy(high, rows[g + 8] + int64_t{four} * 8, 8);
      const uint32_t registers[4] = {low[0], high[0], low[1], high[1]};
      const FragmentPlace p = FragmentPlaceOf(g, four % kFours * 4);
      std::memcpy(packed + int64_t{four / kFours} * kBytes + (p.mma * 32 + p.lane) * 16, registers, 16);
    }
  }
}

void PackF32(int32_t k, TileRows rows, std::byte* packed) {
  std::memset(packed, 0, static_cast<size_t>(RowTileBytes(TensorType::kF32, k)));
  for (int r = 0; r < kTileRows; ++r) {
    if (rows[r] == nullptr) continue;
    for (int64_t i = 0; i < k; ++i) std::memcpy(packed + (i * kTileRows + r) * 4, rows[r] + i * 4, 4);
  }
}

}  // namespace

int64_t PackedBytes(TensorType format, int32_t n, int32_t k, bool gated) {
  CheckShape(format, n, k, gated);
  return RowTiles(n, gated) * RowTileBytes(format, k);
}

int64_t RowTileBytes(TensorType format, int32_t k) {
  if (format == TensorType::kF32) return int64_t{k} * kTileRows * 4;
  const TileLayout layout = TileLayoutOf(format);
  return int64_t{KTiles(layout, k)} * layout.bytes();
}

void PackRowTile(TensorType format, int32_t k, std::span<const uint8_t* const, kTileRows> rows, std::byte* packed) {
  SLUICE_CHECK(HasGpuForm(format));
  if (format == TensorType::kF32) return PackF32(k, rows, packed);
  if (FormatOf(format).codes.bits == 0) return Pack16(k, rows, packed);
  PackBlocks(format, k, rows, packed);
}

void PackWeights(TensorType format, int32_t n, int32_t k, bool gated, std::span<const std::span<const uint8_t>> parts,
                 std::span<std::byte> packed) {
  SLUICE_CHECK(static_cast<int64_t>(packed.size()) == PackedBytes(format, n, k, gated));
  SLUICE_CHECK(!gated || (parts.size() == 2 && parts[0].size() == parts[1].size()));
  const int64_t row_bytes = TensorBytes(format, k);
  if (row_bytes == 0) return;
  std::vector<const uint8_t*> stored;
  for (const std::span<const uint8_t> part : parts) {
    SLUICE_CHECK(part.size() % row_bytes == 0);
    for (int64_t at = 0; at < static_cast<int64_t>(part.size()); at += row_bytes) stored.push_back(part.data() + at);
  }
  SLUICE_CHECK(static_cast<int64_t>(stored.size()) == n);
  for (int32_t row_tile = 0; row_tile < RowTiles(n, gated); ++row_tile) {
    std::array<const uint8_t*, kTileRows> rows;
    for (int r = 0; r < kTileRows; ++r) {
      const int32_t row = UnpackedRow(row_tile, r, n, gated);
      rows[r] = row >= 0 ? stored[row] : nullptr;
    }
    PackRowTile(format, k, rows, packed.data() + row_tile * RowTileBytes(format, k));
  }
}

}  // namespace sluice::cuda
