#include "engine/ops/cuda/kernels/weight_packing.h"

#include <array>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "engine/ops/cuda/kernels/weight_layout.h"

namespace sluice::cuda {
namespace {

struct SourceBlock {
  int elems, bytes;
};

SourceBlock SourceBlockOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {1, 4};
    case WeightFormat::kBF16:
    case WeightFormat::kF16:
      return {1, 2};
    case WeightFormat::kQ8_0:
      return {32, 34};
    case WeightFormat::kQ4_0:
      return {32, 18};
    case WeightFormat::kQ4_1:
      return {32, 20};
    case WeightFormat::kQ5_0:
      return {32, 22};
    case WeightFormat::kQ4_K:
      return {256, 144};
    case WeightFormat::kQ6_K:
      return {256, 210};
  }
  return {};
}

void CheckShape(WeightFormat format, int32_t n, int32_t k, bool gated) {
  SLUICE_CHECK(n >= 0 && k >= 0 && !(gated && n % 2 != 0));
  const int step = SourceBlockOf(format).elems;
  SLUICE_CHECK(format == WeightFormat::kF32 || k % (step == 1 ? 8 : step) == 0);
}

// Blocks of 32 with nibbles: byte l has value l in its low half and value l + 16 in its high half.
uint32_t Nibble(const uint8_t* nibbles, int l) { return nibbles[l % 16] >> (l < 16 ? 0 : 4) & 15; }

// A K tile while it is filled. Every Put* writes what one value adds at its place; bits not written are 0.
class TileWriter {
 public:
  explicit TileWriter(const TileLayout& layout, std::byte* tile) : layout_(layout), tile_(tile) {}

  std::byte* header() { return tile_; }

  void Put16(int r, int kk, const uint8_t* value) {
    const FragmentPlace p = FragmentPlaceOf(r, kk);
    std::memcpy(Payload(0) + ((p.mma * 32 + p.lane) * 4 + p.reg) * 4 + p.half * 2, value, 2);
  }

  void Put8(int r, int kk, uint8_t value) {
    const FragmentPlace p = FragmentPlaceOf(r, kk);
    Payload(0)[(p.mma / 2 * 32 + p.lane) * 16 + p.mma % 2 * 8 + p.reg * 2 + p.half] = std::byte{value};
  }

  // The lowest four bits of a value in column `k` of the tile.
  void Put4(int r, int k, uint32_t value) {
    const FragmentPlace p = FragmentPlaceOf(r, k % kStepK);
    OrWord(Payload(k / kStepK) + (p.lane * 4 + p.mma) * 4, (value & 15) << 4 * (p.reg + 4 * p.half));
  }

  void PutFifth(int r, int kk, uint32_t bit) {
    const FragmentPlace p = FragmentPlaceOf(r, kk);
    OrWord(Payload(0) + 512 + p.lane * 4, bit << (4 * p.mma + p.reg + 16 * p.half));
  }

  void PutFifthAndSixth(int r, int k, uint32_t bits) {
    const FragmentPlace p = FragmentPlaceOf(r, k % kStepK);
    OrWord(Payload(k / kStepK) + 512 + (p.lane * 2 + p.mma / 2) * 4,
           bits << (8 * (p.mma % 2) + 2 * p.reg + 16 * p.half));
  }

 private:
  std::byte* Payload(int step) { return tile_ + layout_.header_bytes + step * layout_.payload_bytes; }

  static void OrWord(std::byte* at, uint32_t bits) {
    uint32_t word;
    std::memcpy(&word, at, 4);
    word |= bits;
    std::memcpy(at, &word, 4);
  }

  const TileLayout layout_;
  std::byte* const tile_;
};

// Row r of a tile, from the file's bytes at `source`: `valid` values of k, the others are padding.
void PackRow(WeightFormat format, const uint8_t* source, int r, int valid, TileWriter& tile) {
  const int g = r % 8, row_half = r / 8;
  switch (format) {
    case WeightFormat::kF32:
      SLUICE_CHECK(false && "f32 has no tiles");
      return;
    case WeightFormat::kBF16:
    case WeightFormat::kF16:
      for (int k = 0; k < valid; ++k) tile.Put16(r, k, source + 2 * k);
      return;
    case WeightFormat::kQ8_0:
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ5_0:
    case WeightFormat::kQ4_1: {
      const int scale_bytes = format == WeightFormat::kQ4_1 ? 4 : 2;
      for (int block = 0; block < valid / 32; ++block) {
        const uint8_t* b = source + block * SourceBlockOf(format).bytes;
        std::memcpy(tile.header() + ((g * 2 + row_half) * 2 + block) * scale_bytes, b, scale_bytes);
        for (int l = 0; l < 32; ++l) {
          const int k = block * 32 + l;
          if (format == WeightFormat::kQ8_0) {
            tile.Put8(r, k, b[2 + l] ^ 0x80);
          } else if (format == WeightFormat::kQ5_0) {
            uint32_t high;
            std::memcpy(&high, b + 2, 4);
            tile.Put4(r, k, Nibble(b + 6, l));
            tile.PutFifth(r, k, high >> l & 1);
          } else {
            tile.Put4(r, k, Nibble(b + scale_bytes, l));
          }
        }
      }
      return;
    }
    case WeightFormat::kQ4_K:
      std::memcpy(tile.header() + r * 16, source, 16);
      for (int k = 0; k < 256; ++k) tile.Put4(r, k, source[16 + k / 64 * 32 + k % 32] >> (k / 32 % 2 * 4));
      return;
    case WeightFormat::kQ6_K:
      std::memcpy(tile.header() + r * 16, source + 192, 16);
      std::memcpy(tile.header() + 256 + r * 2, source + 208, 2);
      for (int k = 0; k < 256; ++k) {
        const int half = k / 128, plane = k / 32 % 4, l = k % 32;
        tile.Put4(r, k, source[64 * half + 32 * (plane % 2) + l] >> (plane / 2 * 4));
        tile.PutFifthAndSixth(r, k, source[128 + 32 * half + l] >> (2 * plane) & 3);
      }
      return;
  }
}

// The rows of all parts, by index.
class SourceRows {
 public:
  SourceRows(std::span<const std::span<const uint8_t>> parts, int64_t row_bytes) {
    for (const std::span<const uint8_t> part : parts) {
      SLUICE_CHECK(row_bytes == 0 || part.size() % row_bytes == 0);
      for (int64_t at = 0; at < static_cast<int64_t>(part.size()); at += row_bytes) rows_.push_back(part.data() + at);
    }
  }
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  const uint8_t* operator[](int64_t row) const { return rows_[row]; }

 private:
  std::vector<const uint8_t*> rows_;
};

void PackF32(const SourceRows& rows, int32_t n, int32_t k, bool gated, std::byte* packed) {
  for (int32_t row_tile = 0; row_tile < RowTiles(n, gated); ++row_tile) {
    for (int r = 0; r < kTileRows; ++r) {
      const int32_t row = UnpackedRow(row_tile, r, n, gated);
      if (row < 0) continue;
      for (int64_t i = 0; i < k; ++i)
        std::memcpy(packed + ((row_tile * int64_t{k} + i) * kTileRows + r) * 4, rows[row] + i * 4, 4);
    }
  }
}

}  // namespace

int64_t PackedBytes(WeightFormat format, int32_t n, int32_t k, bool gated) {
  CheckShape(format, n, k, gated);
  if (format == WeightFormat::kF32) return int64_t{RowTiles(n, gated)} * k * kTileRows * 4;
  const TileLayout layout = TileLayoutOf(format);
  return int64_t{RowTiles(n, gated)} * KTiles(layout, k) * layout.bytes();
}

void PackWeights(WeightFormat format, int32_t n, int32_t k, bool gated, std::span<const std::span<const uint8_t>> parts,
                 std::span<std::byte> packed) {
  SLUICE_CHECK(static_cast<int64_t>(packed.size()) == PackedBytes(format, n, k, gated));
  const SourceBlock block = SourceBlockOf(format);
  const SourceRows rows(parts, int64_t{k} / block.elems * block.bytes);
  SLUICE_CHECK(k == 0 || rows.size() == n);
  SLUICE_CHECK(!gated || (parts.size() == 2 && parts[0].size() == parts[1].size()));
  std::memset(packed.data(), 0, packed.size());
  if (format == WeightFormat::kF32) return PackF32(rows, n, k, gated, packed.data());

  const TileLayout layout = TileLayoutOf(format);
  std::byte* at = packed.data();
  for (int32_t row_tile = 0; row_tile < RowTiles(n, gated); ++row_tile) {
    for (int32_t k0 = 0; k0 < k; k0 += layout.k(), at += layout.bytes()) {
      TileWriter tile(layout, at);
      for (int r = 0; r < kTileRows; ++r) {
        const int32_t row = UnpackedRow(row_tile, r, n, gated);
        if (row < 0) continue;
        const uint8_t* source = rows[row] + int64_t{k0} / block.elems * block.bytes;
        PackRow(format, source, r, k - k0 < layout.k() ? k - k0 : layout.k(), tile);
      }
    }
  }
}

}  // namespace sluice::cuda
