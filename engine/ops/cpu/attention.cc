#include "engine/ops/cpu/attention.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

// Query rows of a unit, if its group allows. Enough that converting keys and values to f32 once for all of them costs
// little; few enough that their sums stay in the second-level cache.
constexpr int kUnitQueryRows = 96;
// From here on a tile is converted once instead of by each of the unit's calls of the kernel.
constexpr int kWidenFrom = 3 * kMaxAttentionRows;
constexpr size_t kPartialBytes = size_t{64} << 20;
// Pieces of work per thread that make up for their unequal sizes.
constexpr int kItemsPerThread = 4;

int32_t FirstVisible(const AttentionMask& mask, int32_t position) {
  switch (mask.kind) {
    case MaskKind::kFull:
      return 0;
    case MaskKind::kWindow:
      return std::max(0, position - mask.size + 1);
    case MaskKind::kChunk:
      return position / mask.size * mask.size;
  }
  return 0;
}

// What a worker needs for a unit of up to `rows` query rows.
struct Buffers {
  float* q;         // [head_dim][rows of a call], call after call
  float* states;    // [rows][state_stride] of the running split
  float* totals;    // [rows][state_stride]
  int32_t* begins;  // [rows] first visible key
  int32_t* ends;    // [rows] one past the last
  uint8_t* wide;    // a tile in f32

  static size_t Bytes(int rows, int head_dim, int state_stride) {
    const size_t row = static_cast<size_t>(head_dim + 2 * state_stride) * sizeof(float) + 2 * sizeof(int32_t);
    const size_t tile = size_t{kTileTokens} * static_cast<size_t>(head_dim + state_stride) * sizeof(float);
    return (static_cast<size_t>(rows) * row + tile + 63) / 64 * 64 + 256;
  }
  Buffers(uint8_t* memory, int rows, int head_dim, int state_stride) {
    wide = memory;
    states = reinterpret_cast<float*>(wide + size_t{kTileTokens} * static_cast<size_t>(head_dim + state_stride) * 4);
    totals = states + rows * state_stride;
    q = totals + rows * state_stride;
    begins = reinterpret_cast<int32_t*>(q + rows * head_dim);
    ends = begins + rows;
  }
};

// One unit being worked on by one worker.
class UnitRunner {
 public:
  UnitRunner(const CpuContext& context, const AttentionArgs& args, const AttentionUnit& unit, const Buffers& buffers)
      : floats_(context.floats),
        batch_(context.batch),
        args_(args),
        kv_(static_cast<const CpuKvCache&>(*args.kv)),
        unit_(unit),
        buffers_(buffers),
        group_(args.heads.num_heads / args.heads.num_kv_heads),
        rows_(unit.num_rows * group_),
        state_stride_(kStateHeader + kv_.value_stride(args.layer)) {
    const KvGroupView& view = batch_.kv_groups[static_cast<size_t>(args.kv_group)];
    table_ = view.block_tables.data() + int64_t{unit.sequence} * view.block_table_stride;
    const KvDType dtype = kv_.shape().dtype;
    attend_ = dtype == KvDType::kF32   ? floats_.attend_f32
              : dtype == KvDType::kF16 ? floats_.attend_f16
                                       : floats_.attend_bf16;
    widen_ = dtype == KvDType::kF32 || rows_ < kWidenFrom ? nullptr
             : dtype == KvDType::kF16                     ? floats_.widen_f16
                                                          : floats_.widen_bf16;
    LoadQueries();
  }

  // Leaves the states of the unit's query rows over one split in `states`.
  void RunSplit(int32_t split, float* states) const {
    for (int i = 0; i < rows_; ++i) Clear(states + i * state_stride_);
    const int32_t first = std::max(split * kSplitTiles, buffers_.begins[0] / kTileTokens);
    const int32_t end = std::min((split + 1) * kSplitTiles, (buffers_.ends[rows_ - 1] - 1) / kTileTokens + 1);
    for (int32_t tile = first; tile < end; ++tile) RunTile(tile, states);
  }

  void RunAll() const {
    for (int i = 0; i < rows_; ++i) Clear(buffers_.totals + i * state_stride_);
    for (int32_t split = unit_.first_split; split < unit_.end_split; ++split) {
      RunSplit(split, buffers_.states);
      Merge(buffers_.states);
    }
    Finish();
  }

  // Partials of all splits -> the result.
  void MergeAll(const float* partials) const {
    for (int i = 0; i < rows_; ++i) Clear(buffers_.totals + i * state_stride_);
    for (int32_t split = unit_.first_split; split < unit_.end_split; ++split) {
      Merge(partials + int64_t{split - unit_.first_split} * rows_ * state_stride_);
    }
    Finish();
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
        const float* from = q.row(row) + int64_t{unit_.kv_head * group_ + i % group_} * head_dim;
        float* to = buffers_.q + first * head_dim + (i - first);
        for (int d = 0; d < head_dim; ++d) to[d * count] = from[d] * args_.scale;
        const int32_t position = batch_.positions[static_cast<size_t>(row)];
        buffers_.begins[i] = FirstVisible(args_.mask, position);
        buffers_.ends[i] = position + 1;
      }
    }
  }

  void Clear(float* state) const {
    std::memset(state, 0, static_cast<size_t>(state_stride_) * sizeof(float));
    state[0] = kEmptyMax;
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
      const int head = unit_.kv_head * group_ + i % group_;
      float* out = RowsOf(args_.out).row(unit_.first_row + i / group_) + int64_t{head} * args_.heads.value_head_dim;
      floats_.finish_state(buffers_.totals + i * state_stride_, sinks != nullptr ? sinks + head : nullptr,
                           args_.heads.value_head_dim, out);
    }
  }

  // The page of tokens 16 * index .. 16 * index + 15 of the sequence.
  const uint8_t* Page(int32_t index) const {
    const int pages_per_block = kv_.pages_per_block();
    const int32_t block = table_[index / pages_per_block];
    SLUICE_DCHECK(block >= 0);
    return kv_.page(args_.layer, block, unit_.kv_head, index % pages_per_block);
  }

  // Pages of a tile, from the first that is visible to anybody to the last. The others are filled with a visible one:
  // the blocks behind a window may have been given away.
  int FillPages(int32_t tile, const uint8_t** pages) const {
    const int32_t start = tile * kTileTokens;
    const int first = std::max(0, buffers_.begins[0] - start) / kPageTokens;
    const int end = (std::min(kTileTokens, buffers_.ends[rows_ - 1] - start) + kPageTokens - 1) / kPageTokens;
    for (int i = first; i < end; ++i) pages[i] = Page(tile * kTilePages + i);
    for (int i = 0; i < first; ++i) pages[i] = pages[first];
    for (int i = end; i < kTilePages; ++i) pages[i] = pages[end - 1];
    return end;
  }

  void RunTile(int32_t tile, float* states) const {
    AttentionTile t;
    t.head_dim = args_.heads.head_dim;
    t.value_stride = kv_.value_stride(args_.layer);
    t.softcap = args_.softcap.value_or(0);
    const int num_pages = FillPages(tile, t.pages);
    const bool more = (tile + 1) * kTileTokens < buffers_.ends[rows_ - 1];
    if (widen_ == nullptr) more ? FillPages(tile + 1, t.next_pages) : FillPages(tile, t.next_pages);
    auto* attend = attend_;
    if (widen_ != nullptr) {
      WidenPages(t, num_pages);
      attend = floats_.attend_f32;
    }
    for (int call = 0; call < NumCalls(); ++call) {
      RunRows(tile, FirstRow(call), FirstRow(call + 1) - FirstRow(call), attend, t, states);
    }
  }

  void RunRows(int32_t tile, int first, int count, decltype(FloatKernels::attend_f32) attend, AttentionTile& t,
               float* states) const {
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

  void WidenPages(AttentionTile& t, int num_pages) const {
    const int64_t values = int64_t{kPageTokens} * (t.head_dim + t.value_stride);
    for (int i = 0; i < num_pages; ++i) {
      float* wide = reinterpret_cast<float*>(buffers_.wide) + i * values;
      widen_(reinterpret_cast<const uint16_t*>(t.pages[i]), values, wide);
      t.pages[i] = reinterpret_cast<const uint8_t*>(wide);
    }
  }

  const FloatKernels& floats_;
  const BatchView& batch_;
  const AttentionArgs& args_;
  const CpuKvCache& kv_;
  const AttentionUnit& unit_;
  const Buffers& buffers_;
  const int group_, rows_, state_stride_;
  const int32_t* table_;
  decltype(FloatKernels::attend_f32) attend_;
  decltype(FloatKernels::widen_f16) widen_;
};

}  // namespace

absl::Status CpuAttention::Reserve(CpuContext& context) {
  if (partials_ == nullptr) partials_ = context.arena.Allocate(kPartialBytes);
  if (partials_ == nullptr) return absl::ResourceExhaustedError("no memory for the sums of attention");
  return absl::OkStatus();
}

void CpuAttention::MakeUnits(const CpuContext& context, AttentionPlan& plan) const {
  const BatchView& batch = context.batch;
  const int32_t rows_per_unit = std::max(1, kUnitQueryRows / plan.group);
  plan.units.clear();
  for (size_t s = 0; s < batch.context_lens.size(); ++s) {
    const int32_t end = batch.row_starts[s + 1];
    for (int32_t row = batch.row_starts[s]; row < end; row += rows_per_unit) {
      AttentionUnit unit{};
      unit.sequence = static_cast<int32_t>(s);
      unit.first_row = row;
      unit.num_rows = std::min(rows_per_unit, end - row);
      unit.partials = -1;
      unit.num_items = 1;
      unit.first_split = FirstVisible(plan.mask, batch.positions[static_cast<size_t>(row)]) / kSplitTokens;
      unit.end_split = batch.positions[static_cast<size_t>(row + unit.num_rows - 1)] / kSplitTokens + 1;
      for (unit.kv_head = 0; unit.kv_head < plan.num_kv_heads; ++unit.kv_head) plan.units.push_back(unit);
    }
  }
}

void CpuAttention::MakeItems(const CpuContext& context, AttentionPlan& plan) const {
  const int wanted = kItemsPerThread * context.num_threads();
  const int num_units = static_cast<int>(plan.units.size());
  const int per_unit = context.num_threads() == 1 ? 1 : (wanted + num_units - 1) / num_units;
  int64_t used = 0;  // floats of partials_
  plan.items.clear();
  for (int u = 0; u < num_units; ++u) {
    AttentionUnit& unit = plan.units[static_cast<size_t>(u)];
    const int splits = unit.end_split - unit.first_split;
    const int64_t floats = int64_t{splits} * unit.num_rows * plan.group * plan.state_stride;
    const bool room = static_cast<size_t>(used + floats) * sizeof(float) <= kPartialBytes;
    unit.num_items = room ? std::min(splits, per_unit) : 1;
    if (unit.num_items > 1) {
      unit.partials = used;
      used += floats;
    }
    for (int i = 0; i < unit.num_items; ++i) {
      plan.items.push_back(
          {u, unit.first_split + splits * i / unit.num_items, unit.first_split + splits * (i + 1) / unit.num_items});
    }
  }
}

const AttentionPlan& CpuAttention::PlanFor(CpuContext& context, const AttentionArgs& args, int state_stride) {
  const int group = args.heads.num_heads / args.heads.num_kv_heads;
  AttentionPlan* stale = nullptr;  // of an earlier step
  for (AttentionPlan& plan : plans_) {
    if (plan.step != context.step) {
      if (stale == nullptr) stale = &plan;
    } else if (plan.kv_group == args.kv_group && plan.num_kv_heads == args.heads.num_kv_heads && plan.group == group &&
               plan.state_stride == state_stride && plan.mask.kind == args.mask.kind &&
               plan.mask.size == args.mask.size) {
      return plan;
    }
  }
  if (stale == nullptr) stale = &plans_[context.step % kMaxPlans];
  AttentionPlan& plan = *stale;
  plan.kv_group = args.kv_group;
  plan.num_kv_heads = args.heads.num_kv_heads;
  plan.group = group;
  plan.state_stride = state_stride;
  plan.mask = args.mask;
  plan.step = context.step;
  const size_t rows = static_cast<size_t>(std::max(context.num_tokens(), context.max_tokens));
  const size_t max_units = rows * static_cast<size_t>(plan.num_kv_heads);
  plan.units.reserve(max_units);
  plan.items.reserve(max_units + static_cast<size_t>(2 * kItemsPerThread * context.num_threads()));
  MakeUnits(context, plan);
  MakeItems(context, plan);
  if (num_done_ < max_units) {
    done_ = std::make_unique<std::atomic<int32_t>[]>(max_units);
    num_done_ = max_units;
  }
  return plan;
}

void CpuAttention::Run(CpuContext& context, const AttentionArgs& args) {
  if (context.num_tokens() == 0) return;
  const CpuKvCache& kv = static_cast<const CpuKvCache&>(*args.kv);
  const int state_stride = kStateHeader + kv.value_stride(args.layer), head_dim = args.heads.head_dim;
  const AttentionPlan& plan = PlanFor(context, args, state_stride);
  const int rows = std::max(1, kUnitQueryRows / plan.group) * plan.group;
  const size_t bytes = Buffers::Bytes(rows, head_dim, state_stride);
  uint8_t* memory = worker_buffers_.Reserve<uint8_t>(bytes * static_cast<size_t>(context.num_threads()));
  context.pool.ParallelFor(static_cast<uint32_t>(plan.items.size()), [&](uint32_t chunk, int worker) {
    const AttentionItem& item = plan.items[chunk];
    const AttentionUnit& unit = plan.units[static_cast<size_t>(item.unit)];
    const Buffers buffers(memory + bytes * static_cast<size_t>(worker), rows, head_dim, state_stride);
    const UnitRunner runner(context, args, unit, buffers);
    if (unit.partials < 0) return runner.RunAll();
    float* partials = reinterpret_cast<float*>(partials_.get()) + unit.partials;
    const int64_t split_floats = int64_t{unit.num_rows} * plan.group * state_stride;
    for (int32_t split = item.first_split; split < item.end_split; ++split) {
      runner.RunSplit(split, partials + (split - unit.first_split) * split_floats);
    }
    std::atomic<int32_t>& done = done_[static_cast<size_t>(item.unit)];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < unit.num_items) return;
    done.store(0, std::memory_order_relaxed);
    runner.MergeAll(partials);
  });
}

}  // namespace sluice
