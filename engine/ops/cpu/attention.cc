#include "engine/ops/cpu/attention.h"

#include <algorithm>

#include "engine/ops/cpu/attention_unit.h"
#include "engine/ops/cpu/kv_cache.h"

namespace sluice {
namespace {

// Query rows of a unit, if its group allows. Enough that converting keys and values to f32 once for all of them costs
// little; few enough that their sums stay in the second-level cache.
constexpr int kUnitQueryRows = 96;
// From here on a tile is converted once instead of by each of the unit's calls of the kernel.
constexpr int kWidenFrom = 3 * kMaxAttentionRows;

// Tiles as they lie in the cache, in f32 for units of many query rows.
class CachedTiles {
 public:
  // `wide`: room for a tile in f32.
  CachedTiles(const CpuContext& context, const AttentionArgs& args, const AttentionUnit& unit, uint8_t* wide)
      : floats_(context.floats),
        kv_(static_cast<const CpuKvCache&>(*args.kv)),
        pages_(kv_, context.batch.kv_groups[static_cast<size_t>(args.kv_group)], unit.sequence, args.layer, unit.head),
        head_dim_(args.heads.head_dim),
        value_stride_(kv_.value_stride(args.layer)),
        wide_(wide) {
    const KvDType dtype = kv_.shape().dtype;
    attend_ = dtype == KvDType::kF32   ? floats_.attend_f32
              : dtype == KvDType::kF16 ? floats_.attend_f16
                                       : floats_.attend_bf16;
    const int query_rows = unit.num_rows * (args.heads.num_heads / args.heads.num_kv_heads);
    widen_ = dtype == KvDType::kF32 || query_rows < kWidenFrom ? nullptr
             : dtype == KvDType::kF16                          ? floats_.widen_f16
                                                               : floats_.widen_bf16;
  }

  int value_stride() const { return value_stride_; }

  AttendFunction Load(int32_t tile, int32_t begin, int32_t end, AttentionTile* t) const {
    const int num_pages = pages_.Fill(tile, begin, end, t->pages);
    if (widen_ == nullptr) {
      pages_.FillNext(tile, begin, end, t->next_pages);
      return attend_;
    }
    const int64_t values = int64_t{kPageTokens} * (head_dim_ + value_stride_);
    for (int i = 0; i < num_pages; ++i) {
      float* wide = reinterpret_cast<float*>(wide_) + i * values;
      widen_(reinterpret_cast<const uint16_t*>(t->pages[i]), values, wide);
      t->pages[i] = reinterpret_cast<const uint8_t*>(wide);
    }
    return floats_.attend_f32;
  }

 private:
  const FloatKernels& floats_;
  const CpuKvCache& kv_;
  SequencePages pages_;
  int head_dim_, value_stride_;
  uint8_t* wide_;
  AttendFunction attend_;
  decltype(FloatKernels::widen_f16) widen_;
};

}  // namespace

void CpuAttention::Run(CpuContext& context, const AttentionArgs& args) {
  if (context.num_tokens() == 0) return;
  const int value_stride = static_cast<const CpuKvCache&>(*args.kv).value_stride(args.layer);
  const int state_stride = kStateHeader + value_stride, head_dim = args.heads.head_dim;
  const int group = args.heads.num_heads / args.heads.num_kv_heads;

  AttentionLayout layout;
  layout.mask = args.mask;
  layout.num_heads = args.heads.num_kv_heads;
  layout.rows_per_unit = std::max(1, kUnitQueryRows / group);
  layout.row_floats = int64_t{group} * state_stride;

  const int rows = layout.rows_per_unit * group;
  const size_t tile_bytes = size_t{kTileTokens} * static_cast<size_t>(head_dim + value_stride) * sizeof(float);
  const size_t bytes = UnitBuffers::Bytes(rows, head_dim, state_stride, tile_bytes);
  uint8_t* memory = worker_buffers_.Reserve<uint8_t>(bytes * static_cast<size_t>(context.num_threads()));
  planner_.Run(context, layout, [&](const AttentionUnit& unit, int worker) {
    const UnitBuffers buffers(memory + bytes * static_cast<size_t>(worker), rows, head_dim, state_stride, tile_bytes);
    return UnitRunner<CachedTiles>(context, args, unit, buffers, CachedTiles(context, args, unit, buffers.tile));
  });
}

}  // namespace sluice
