// A unit of attention over keys and values per KV head, worked on by one worker: some rows of a sequence for all query
// heads of a KV head. Where the tiles come from is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/ops/cpu/attention_plan.h"
#include "engine/ops/cpu/cpu_context.h"
#include "engine/ops/cpu/kv_cache.h"

namespace sluice {

using AttendFunction = decltype(FloatKernels::attend_f32);

// What a worker needs for a unit of up to `rows` query rows.
struct UnitBuffers {
  float* q;         // [head_dim][rows of a call], call after call
  float* states;    // [rows][state_stride] of the running split
  float* totals;    // [rows][state_stride]
  int32_t* begins;  // [rows] first visible key
  int32_t* ends;    // [rows] one past the last
  uint8_t* tile;    // for the source of the tiles

  // A multiple of 64. `tile_bytes` is one too.
  static size_t Bytes(int rows, int head_dim, int state_stride, size_t tile_bytes) {
    const size_t row = static_cast<size_t>(head_dim + 2 * state_stride) * sizeof(float) + 2 * sizeof(int32_t);
    return tile_bytes + (static_cast<size_t>(rows) * row + 63) / 64 * 64 + 256;
  }
  UnitBuffers(uint8_t* memory, int rows, int head_dim, int state_stride, size_t tile_bytes) {
    tile = memory;
    states = reinterpret_cast<float*>(memory + tile_bytes);
    totals = states + rows * state_stride;
    q = totals + rows * state_stride;
    begins = reinterpret_cast<int32_t*>(q + rows * head_dim);
    ends = begins + rows;
  }
};

// `Tiles` is copied and has
//   value_stride()               of a page
//   Load(tile, begin, end, &t)   fills t.pages, and t.next_pages if the kernel prefetches, for tile `tile` of the
//                                sequence; keys outside [begin, end), counted from position 0, are visible to no row
//                                and must not be touched. Returns the kernel.
// Of `args` the runner takes q, heads, scale, softcap, mask, sinks and out.
template <class Tiles>
class UnitRunner {
 public:
  UnitRunner(const CpuContext& context, const AttentionArgs& args, const AttentionUnit& unit,
             const UnitBuffers& buffers, const Tiles& tiles)
      : floats_(context.floats),
        batch_(context.batch),
        args_(args),
        unit_(unit),
        buffers_(buffers),
        tiles_(tiles),
        group_(args.heads.num_heads / args.heads.num_kv_heads),
        rows_(unit.num_rows * group_),
        state_stride_(kStateHeader + tiles.value_stride()) {
    LoadQueries();
  }

  float* states() const { return buffers_.states; }

  // Leaves the states of the unit's query rows over one split in `states`.
  void RunSplit(int32_t split, float* states) const {
    for (int i = 0; i < rows_; ++i) Clear(states + i * state_stride_);
    const int32_t first = std::max(split * kSplitTiles, buffers_.begins[0] / kTileTokens);
    const int32_t end = std::min((split + 1) * kSplitTiles, (buffers_.ends[rows_ - 1] - 1) / kTileTokens + 1);
    for (int32_t tile = first; tile < end; ++tile) RunTile(tile, states);
  }

  void Begin() const {
    for (int i = 0; i < rows_; ++i) Clear(buffers_.totals + i * state_stride_);
  }

  void Merge(const float* states) const {
    for (int i = 0; i < rows_; ++i) {
      floats_.merge_states(states + i * state_stride_, state_stride_ - kStateHeader,
                           buffers_.totals + i * state_stride_);
    }
  }

  void Finish() const {
    const float* sinks = DataOf(args_.sinks);
    for (int i = 0; i < rows_; ++i) {
      const int head = unit_.head * group_ + i % group_;
      float* out = RowsOf(args_.out).row(unit_.first_row + i / group_) + int64_t{head} * args_.heads.value_head_dim;
      floats_.finish_state(buffers_.totals + i * state_stride_, sinks != nullptr ? sinks + head : nullptr,
                           args_.heads.value_head_dim, out);
    }
  }

 private:
  // The kernel takes the unit's query rows in calls of near-equal size.
  int NumCalls() const { return (rows_ + kMaxAttentionRows - 1) / kMaxAttentionRows; }
  int FirstRow(int call) const { return rows_ * call / NumCalls(); }

  // Query row i is head `i % group_` of the KV head's group at the unit's row `i / group_`. The rows of a call lie
  // dimension by dimension.
  void LoadQueries() const {
    const CpuActivations& q = RowsOf(args_.q);
    const int head_dim = args_.heads.head_dim;
    for (int call = 0; call < NumCalls(); ++call) {
      const int first = FirstRow(call), count = FirstRow(call + 1) - first;
      for (int i = first; i < first + count; ++i) {
        const int row = unit_.first_row + i / group_;
        const float* from = q.row(row) + int64_t{unit_.head * group_ + i % group_} * head_dim;
        float* to = buffers_.q + first * head_dim + (i - first);
        for (int d = 0; d < head_dim; ++d) to[d * count] = from[d] * args_.scale;
        const int32_t position = batch_.positions[static_cast<size_t>(row)];
        buffers_.begins[i] = FirstVisibleKey(args_.mask, position);
        buffers_.ends[i] = position + 1;
      }
    }
  }

  void Clear(float* state) const {
    std::memset(state, 0, static_cast<size_t>(state_stride_) * sizeof(float));
    state[0] = kEmptyMax;
  }

  void RunTile(int32_t tile, float* states) const {
    AttentionTile t;
    t.head_dim = args_.heads.head_dim;
    t.value_stride = tiles_.value_stride();
    t.softcap = args_.softcap.value_or(0);
    const AttendFunction attend = tiles_.Load(tile, buffers_.begins[0], buffers_.ends[rows_ - 1], &t);
    for (int call = 0; call < NumCalls(); ++call) {
      RunRows(tile, FirstRow(call), FirstRow(call + 1) - FirstRow(call), attend, t, states);
    }
  }

  void RunRows(int32_t tile, int first, int count, AttendFunction attend, AttentionTile& t, float* states) const {
    const int32_t start = tile * kTileTokens;
    int begins[kMaxAttentionRows], ends[kMaxAttentionRows];
    for (int i = 0; i < count; ++i) {
      begins[i] = std::clamp(buffers_.begins[first + i] - start, 0, kTileTokens);
      ends[i] = std::clamp(buffers_.ends[first + i] - start, 0, kTileTokens);
    }
    t.first_token = begins[0];
    t.end_token = ends[count - 1];
    if (t.first_token >= t.end_token) return;  // nothing to see
    attend(t, {buffers_.q + first * t.head_dim, states + first * state_stride_, begins, ends, count});
  }

  const FloatKernels& floats_;
  const BatchView& batch_;
  const AttentionArgs& args_;
  const AttentionUnit& unit_;
  const UnitBuffers buffers_;
  const Tiles tiles_;
  const int group_, rows_, state_stride_;
};

// Pages of one KV head of a sequence in the cache.
class SequencePages {
 public:
  SequencePages(const CpuKvCache& kv, const KvGroupView& group, int32_t sequence, int layer, int kv_head)
      : kv_(kv),
        table_(group.block_tables.data() + int64_t{sequence} * group.block_table_stride),
        layer_(layer),
        kv_head_(kv_head) {}

  // Pages of a tile, from the first with keys in [begin, end) to the last; returns one past its index. The others are
  // filled with one of these: the blocks behind a window may have been given away.
  int Fill(int32_t tile, int32_t begin, int32_t end, const uint8_t** pages) const {
    const int32_t start = tile * kTileTokens;
    const int first_page = std::max(0, begin - start) / kPageTokens;
    const int end_page = (std::min(kTileTokens, end - start) + kPageTokens - 1) / kPageTokens;
    for (int i = first_page; i < end_page; ++i) pages[i] = Page(tile * kTilePages + i);
    for (int i = 0; i < first_page; ++i) pages[i] = pages[first_page];
    for (int i = end_page; i < kTilePages; ++i) pages[i] = pages[end_page - 1];
    return end_page;
  }
  // For prefetching: the tile behind `tile`, or `tile` again where nobody sees it.
  void FillNext(int32_t tile, int32_t begin, int32_t end, const uint8_t** pages) const {
    Fill((tile + 1) * kTileTokens < end ? tile + 1 : tile, begin, end, pages);
  }

 private:
  // The page of tokens 16 * index .. 16 * index + 15 of the sequence.
  const uint8_t* Page(int32_t index) const {
    const int pages_per_block = kv_.pages_per_block();
    const int32_t block = table_[index / pages_per_block];
    SLUICE_DCHECK(block >= 0);
    return kv_.page(layer_, block, kv_head_, index % pages_per_block);
  }

  const CpuKvCache& kv_;
  const int32_t* table_;
  int layer_, kv_head_;
};

}  // namespace sluice
