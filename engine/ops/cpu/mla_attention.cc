// Both forms of latent attention (MlaAttentionArgs) on the CPU.
//
// Worked example: one head; latents of 2 values, keys of 2 values without position and one rotated, values of 1.
//   key matrix K = | 1 0 |    value matrix V = | 2 -1 |    query: nope (2, 1), rope 1; scale 1
//                  | 1 1 |
//   cache: token 0 latent c = (1, 2), rope key 3;  token 1 c = (0, 1), rope key 7
//
//   expanded: makes keys and values of every token                 absorbed: stays among the latents
//     token 0: K c = (1, 3), V c =  0                                query K^T (2, 1) = (3, 1), once a row
//     token 1: K c = (0, 1), V c = -1
//     s0 = 2*1 + 1*3 + 1*3 = 8                                       s0 = 3*1 + 1*2 + 1*3 = 8
//     s1 = 2*0 + 1*1 + 1*7 = 8                                       s1 = 3*0 + 1*1 + 1*7 = 8
//     weights 0.5, 0.5                                               weights 0.5, 0.5; weighted latent (0.5, 1.5)
//     out = 0.5 * 0 + 0.5 * -1 = -0.5                                out = V (0.5, 1.5) = 1 - 1.5 = -0.5, once a row
//
// DeepSeek-V3 (latent 512, nope 128, rope 64, value 128), multiplications for a head: expanded (128 + 128) * 512 =
// 131,072 a token, then 192 + 128 = 320 a token and row; absorbed 576 + 512 = 1,088 a token and row, 131,072 a row. So
// decoding takes the absorbed form, and prompts of hundreds of rows, which share what is made, gain by the expanded
// one.
//
//   absorbed: for each row and 16 heads, a lane a head         expanded: for each head and up to 512 rows
//     q      [key_dim][16 heads]                                 a tile of 64 tokens is made as the kernels for f32
//     a key  is broadcast to all lanes, and is its own value     keys take it, and attended to by all rows of the unit
#include "engine/ops/cpu/mla_attention.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/cpu/attention_unit.h"
#include "engine/ops/cpu/kv_cache.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/mla_weights.h"
#include "engine/ops/cpu/operand.h"
#include "engine/ops/cpu/run_panel.h"

namespace sluice {
namespace {

// Lane groups of a unit of the absorbed form: their queries and sums stay in the second-level cache, beside a tile.
constexpr int kUnitLaneGroups = 4;
// Rows of a unit of the expanded form. Making a tile of a head costs as much as attending to it with some 400 rows.
constexpr int kExpandedRows = 512;

size_t RoundUp64(size_t bytes) { return (bytes + 63) / 64 * 64; }

decltype(FloatKernels::widen_f16) WidenFor(const FloatKernels& floats, KvDType dtype) {
  return dtype == KvDType::kF32 ? nullptr : dtype == KvDType::kF16 ? floats.widen_f16 : floats.widen_bf16;
}

const CpuMlaUp& UpOf(const MlaAttentionArgs& args) { return static_cast<const CpuMlaUp&>(*args.up); }

// ---------------------------------------------------------------- absorbed

// For each row and head the query in latent space, then, when it has been used, the weighted latent in the form that
// the value matrices take.
struct LatentRows {
  ActivationType type;  // of the weighted latents
  uint8_t* data;
  size_t slot_bytes;
  int num_heads;

  uint8_t* at(int64_t row, int head) const { return data + static_cast<size_t>(row * num_heads + head) * slot_bytes; }
  // Those of one head.
  ActivationRows Head(int head) const { return {type, at(0, head), slot_bytes * static_cast<size_t>(num_heads)}; }
};

// What a worker needs for a unit of up to `rows` rows with `groups` lane groups each.
struct AbsorbedBuffers {
  float* wide;      // a tile in f32
  float* q;         // [rows][groups][key_dim][16]
  float* states;    // [rows][groups][state_floats] of the running split
  float* totals;    // the same
  float* latent;    // [value_dim]
  int32_t* begins;  // [rows] first visible key
  int32_t* ends;    // [rows] one past the last

  static size_t Bytes(int rows, int groups, int key_dim, int value_dim) {
    const size_t lanes = static_cast<size_t>(rows * groups * kLatentLanes);
    const size_t states = lanes * static_cast<size_t>(value_dim) + static_cast<size_t>(rows * groups * kLatentHeader);
    const size_t floats =
        (kTileTokens + lanes) * static_cast<size_t>(key_dim) + 2 * states + static_cast<size_t>(value_dim);
    return RoundUp64(floats * sizeof(float) + 2 * static_cast<size_t>(rows) * sizeof(int32_t)) + 256;
  }
  AbsorbedBuffers(uint8_t* memory, int rows, int groups, int key_dim, int value_dim) {
    const int64_t lanes = int64_t{rows} * groups * kLatentLanes;
    wide = reinterpret_cast<float*>(memory);
    q = wide + int64_t{kTileTokens} * key_dim;
    states = q + lanes * key_dim;
    totals = states + lanes * value_dim + int64_t{rows} * groups * kLatentHeader;
    latent = totals + (totals - states);
    begins = reinterpret_cast<int32_t*>(latent + value_dim);
    ends = begins + rows;
  }
};

// Rows of a sequence with some of their heads, in groups of sixteen.
class AbsorbedRunner {
 public:
  AbsorbedRunner(const CpuContext& context, const MlaAttentionArgs& args, const AttentionUnit& unit,
                 const AbsorbedBuffers& buffers, const LatentRows& latents)
      : context_(context),
        args_(args),
        unit_(unit),
        buffers_(buffers),
        latents_(latents),
        kv_(static_cast<const CpuKvCache&>(*args.kv)),
        pages_(kv_, context.batch.kv_groups[static_cast<size_t>(args.kv_group)], unit.sequence, args.layer, 0),
        value_dim_(args.heads.kv_lora_rank),
        key_dim_(value_dim_ + args.heads.qk_rope_head_dim),
        first_head_(unit.head * kUnitLaneGroups * kLatentLanes),
        num_heads_(std::min(args.heads.num_heads - first_head_, kUnitLaneGroups * kLatentLanes)),
        groups_((num_heads_ + kLatentLanes - 1) / kLatentLanes),
        state_floats_(kLatentHeader + value_dim_ * kLatentLanes) {
    LoadQueries();
  }

  float* states() const { return buffers_.states; }

  void RunSplit(int32_t split, float* states) const {
    Clear(states);
    const int32_t first = std::max(split * kSplitTiles, buffers_.begins[0] / kTileTokens);
    const int32_t end = std::min((split + 1) * kSplitTiles, (LastEnd() - 1) / kTileTokens + 1);
    for (int32_t tile = first; tile < end; ++tile) RunTile(tile, states);
  }

  void Begin() const { Clear(buffers_.totals); }

  void Merge(const float* states) const {
    for (int i = 0; i < unit_.num_rows * groups_; ++i) {
      context_.floats.merge_latents(states + i * state_floats_, value_dim_, buffers_.totals + i * state_floats_);
    }
  }

  void Finish() const {
    for (int row = 0; row < unit_.num_rows; ++row) {
      for (int head = 0; head < num_heads_; ++head) StoreLatent(row, head);
    }
  }

 private:
  int32_t LastEnd() const { return buffers_.ends[unit_.num_rows - 1]; }

  void LoadQueries() const {
    const Mla& h = args_.heads;
    const int head_dim = h.qk_nope_head_dim + h.qk_rope_head_dim;
    std::memset(buffers_.q, 0, sizeof(float) * static_cast<size_t>(unit_.num_rows * groups_ * key_dim_ * kLatentLanes));
    for (int i = 0; i < unit_.num_rows; ++i) {
      const int row = unit_.first_row + i;
      for (int lane = 0; lane < num_heads_; ++lane) {
        const int head = first_head_ + lane;
        const float* latent = reinterpret_cast<const float*>(latents_.at(row, head));
        const float* rope = RowsOf(args_.q).row(row) + head * head_dim + h.qk_nope_head_dim;
        float* to = buffers_.q + (i * groups_ + lane / kLatentLanes) * key_dim_ * kLatentLanes + lane % kLatentLanes;
        for (int d = 0; d < value_dim_; ++d, to += kLatentLanes) *to = latent[d] * args_.scale;
        for (int d = 0; d < h.qk_rope_head_dim; ++d, to += kLatentLanes) *to = rope[d] * args_.scale;
      }
      const int32_t position = context_.batch.positions[static_cast<size_t>(row)];
      buffers_.begins[i] = FirstVisibleKey(args_.mask, position);
      buffers_.ends[i] = position + 1;
    }
  }

  void Clear(float* states) const {
    for (int i = 0; i < unit_.num_rows * groups_; ++i, states += state_floats_) {
      std::memset(states, 0, static_cast<size_t>(state_floats_) * sizeof(float));
      std::fill_n(states, kLatentLanes, kEmptyMax);
    }
  }

  void RunTile(int32_t tile, float* states) const {
    LatentTile t;
    t.key_dim = key_dim_;
    t.value_dim = value_dim_;
    FillPages(tile, &t);
    const int32_t start = tile * kTileTokens;
    for (int row = 0; row < unit_.num_rows; ++row) {
      t.first_token = std::clamp(buffers_.begins[row] - start, 0, kTileTokens);
      t.end_token = std::clamp(buffers_.ends[row] - start, 0, kTileTokens);
      if (t.first_token >= t.end_token) continue;  // nothing to see
      for (int i = row * groups_; i < (row + 1) * groups_; ++i) {
        // Once is enough to fetch the next tile.
        t.next_value_bytes = i == unit_.num_rows * groups_ - 1 ? kv_.value_bytes() : 0;
        context_.floats.attend_latents(t, buffers_.q + i * key_dim_ * kLatentLanes, states + i * state_floats_);
      }
    }
  }

  void FillPages(int32_t tile, LatentTile* t) const {
    const uint8_t* pages[kTilePages];
    const int num_pages = pages_.Fill(tile, buffers_.begins[0], LastEnd(), pages);
    pages_.FillNext(tile, buffers_.begins[0], LastEnd(), t->next_pages);
    const auto widen = WidenFor(context_.floats, kv_.shape().dtype);
    const int page_values = key_dim_ * kPageTokens;
    for (int i = 0; i < kTilePages; ++i) {
      t->pages[i] = reinterpret_cast<const float*>(pages[i]);
      if (widen == nullptr || i >= num_pages) continue;
      float* wide = buffers_.wide + i * page_values;
      widen(reinterpret_cast<const uint16_t*>(pages[i]), page_values, wide);
      t->pages[i] = wide;
    }
  }

  void StoreLatent(int row, int head) const {
    const float* total = buffers_.totals + (row * groups_ + head / kLatentLanes) * state_floats_ + head % kLatentLanes;
    const float factor = 1 / total[kLatentLanes];
    uint8_t* slot = latents_.at(unit_.first_row + row, first_head_ + head);
    float* y = latents_.type == ActivationType::kF32 ? reinterpret_cast<float*>(slot) : buffers_.latent;
    for (int d = 0; d < value_dim_; ++d) y[d] = total[kLatentHeader + d * kLatentLanes] * factor;
    if (latents_.type == ActivationType::kF32) return;
    context_.linear.quantize[static_cast<int>(latents_.type)](y, value_dim_, slot);
  }

  const CpuContext& context_;
  const MlaAttentionArgs& args_;
  const AttentionUnit& unit_;
  const AbsorbedBuffers buffers_;
  const LatentRows& latents_;
  const CpuKvCache& kv_;
  const SequencePages pages_;
  const int value_dim_, key_dim_, first_head_, num_heads_, groups_, state_floats_;
};

// Multiplies the rows of each head with the head's matrix, weights(head); `rows(head)` are those of the whole step.
// out(row, head): where the row's result goes.
template <class Weights, class Rows, class Out>
void MultiplyHeads(CpuContext& context, const std::vector<RowRange>& ranges, int num_heads, Weights&& weights,
                   Rows&& rows, Out&& out) {
  const uint32_t num_ranges = static_cast<uint32_t>(ranges.size());
  const uint32_t num_panels = static_cast<uint32_t>(weights(0).num_panels());
  context.pool.ParallelFor(num_ranges * num_panels * static_cast<uint32_t>(num_heads), [&](uint32_t chunk, int) {
    const RowRange range = ranges[chunk % num_ranges];
    const int head = static_cast<int>(chunk / num_ranges / num_panels);
    const PackedLinear& matrix = weights(head);
    const PanelView panel = matrix.panel(chunk / num_ranges % num_panels);
    RunPanel(context.linear, panel, matrix.k(), rows(head).From(range.first), range.end - range.first,
             [&](int first, int count, const float* tile) {
               for (int r = 0; r < count; ++r) {
                 std::memcpy(out(range.first + first + r, head) + panel.first_row, tile + r * kPanelRows,
                             static_cast<size_t>(panel.num_rows) * sizeof(float));
               }
             });
  });
}

// ---------------------------------------------------------------- expanded

// Tiles of one head's keys and values, made from the latents. A page is as the kernels for f32 take it.
class ExpandedTiles {
 public:
  static size_t Bytes(const MlaAttentionArgs& args) {
    const Mla& h = args.heads;
    const int floats =
        kTilePages * PageFloats(h) + kPageTokens * (h.kv_lora_rank + h.qk_rope_head_dim) + kTileTokens * h.kv_lora_rank;
    return static_cast<size_t>(floats) * sizeof(float) + kTileTokens * NarrowBytes(h);
  }

  ExpandedTiles(const CpuContext& context, const MlaAttentionArgs& args, const AttentionUnit& unit, uint8_t* memory)
      : context_(context),
        heads_(args.heads),
        kv_(static_cast<const CpuKvCache&>(*args.kv)),
        pages_(kv_, context.batch.kv_groups[static_cast<size_t>(args.kv_group)], unit.sequence, args.layer, 0),
        key_(UpOf(args).key(unit.head)),
        value_(UpOf(args).value(unit.head)),
        value_stride_(ValueStride(heads_)),
        page_floats_(PageFloats(heads_)),
        narrow_bytes_(NarrowBytes(heads_)) {
    expanded_ = reinterpret_cast<float*>(memory);
    wide_ = expanded_ + kTilePages * page_floats_;
    rows_ = wide_ + kPageTokens * (heads_.kv_lora_rank + heads_.qk_rope_head_dim);
    narrow_ = reinterpret_cast<uint8_t*>(rows_ + kTileTokens * heads_.kv_lora_rank);
  }

  int value_stride() const { return value_stride_; }

  AttendFunction Load(int32_t tile, int32_t begin, int32_t end, AttentionTile* t) const {
    const uint8_t* cached[kTilePages];
    const int end_page = pages_.Fill(tile, begin, end, cached);
    const int first_page = std::max(0, begin - tile * kTileTokens) / kPageTokens;
    for (int page = first_page; page < end_page; ++page) LoadPage(page, cached[page]);
    const int first = first_page * kPageTokens, count = (end_page - first_page) * kPageTokens;
    Multiply(key_, first, count, [&](int token, int row, const float* tile_row, int num) {
      float* to = Page(token / kPageTokens) + row * kPageTokens + token % kPageTokens;
      for (int i = 0; i < num; ++i) to[i * kPageTokens] = tile_row[i];
    });
    Multiply(value_, first, count, [&](int token, int row, const float* tile_row, int num) {
      std::memcpy(Values(token) + row, tile_row, static_cast<size_t>(num) * sizeof(float));
    });
    for (int i = 0; i < kTilePages; ++i) {
      t->pages[i] = reinterpret_cast<const uint8_t*>(Page(std::clamp(i, first_page, end_page - 1)));
    }
    return context_.floats.attend_f32;
  }

 private:
  static int ValueStride(const Mla& h) { return (h.v_head_dim + 15) / 16 * 16; }
  static int PageFloats(const Mla& h) {
    return kPageTokens * (h.qk_nope_head_dim + h.qk_rope_head_dim + ValueStride(h));
  }
  static size_t NarrowBytes(const Mla& h) {
    return RoundUp64(ActivationRowBytes(ActivationType::kInt16, h.kv_lora_rank));
  }

  float* Page(int page) const { return expanded_ + page * page_floats_; }
  float* Values(int token) const {
    return Page(token / kPageTokens) + kPageTokens * (heads_.qk_nope_head_dim + heads_.qk_rope_head_dim) +
           token % kPageTokens * value_stride_;
  }

  // The rope keys go to their place; the latents become rows of rows_, or of narrow_ in the form of the weights.
  void LoadPage(int page, const uint8_t* cached) const {
    const int lora = heads_.kv_lora_rank, rope = heads_.qk_rope_head_dim;
    const float* keys = reinterpret_cast<const float*>(cached);
    if (const auto widen = WidenFor(context_.floats, kv_.shape().dtype)) {
      widen(reinterpret_cast<const uint16_t*>(cached), kPageTokens * (lora + rope), wide_);
      keys = wide_;
    }
    std::memcpy(Page(page) + heads_.qk_nope_head_dim * kPageTokens, keys + lora * kPageTokens,
                static_cast<size_t>(rope) * kPageTokens * sizeof(float));
    float* rows = rows_ + page * kPageTokens * lora;
    for (int d = 0; d < lora; ++d) {
      for (int t = 0; t < kPageTokens; ++t) rows[t * lora + d] = keys[d * kPageTokens + t];
    }
    const bool quantized = key_.quantized() || value_.quantized();
    const ActivationType type = quantized ? context_.activations : ActivationType::kF32;
    for (int t = 0; t < kPageTokens; ++t) {
      const int token = page * kPageTokens + t;
      std::memset(Values(token), 0, static_cast<size_t>(value_stride_) * sizeof(float));
      if (type == ActivationType::kF32) continue;
      context_.linear.quantize[static_cast<int>(type)](rows + t * lora, lora, narrow_ + token * narrow_bytes_);
    }
  }

  // epilogue(token, row, results, num): outputs row .. row + num - 1 of a token.
  template <class Epilogue>
  void Multiply(const PackedLinear& weights, int first_token, int count, Epilogue&& epilogue) const {
    ActivationRows rows{Operand::TypeFor(context_, weights), narrow_, narrow_bytes_};
    if (rows.type == ActivationType::kF32) {
      rows.data = reinterpret_cast<const uint8_t*>(rows_);
      rows.stride_bytes = static_cast<size_t>(heads_.kv_lora_rank) * sizeof(float);
    }
    for (int64_t index = 0; index < weights.num_panels(); ++index) {
      const PanelView panel = weights.panel(index);
      RunPanel(context_.linear, panel, weights.k(), rows.From(first_token), count,
               [&](int first, int num_rows, const float* tile) {
                 for (int r = 0; r < num_rows; ++r) {
                   epilogue(first_token + first + r, static_cast<int>(panel.first_row), tile + r * kPanelRows,
                            panel.num_rows);
                 }
               });
    }
  }

  const CpuContext& context_;
  const Mla& heads_;
  const CpuKvCache& kv_;
  const SequencePages pages_;
  const PackedLinear& key_;
  const PackedLinear& value_;
  const int value_stride_, page_floats_;
  const size_t narrow_bytes_;
  float* expanded_;  // [kTilePages][page_floats_]
  float* wide_;      // a page of the cache
  float* rows_;      // [kTileTokens][kv_lora]
  uint8_t* narrow_;  // [kTileTokens][narrow_bytes_]
};

}  // namespace

void CpuMla::Attention(CpuContext& context, const MlaAttentionArgs& args) {
  if (context.num_tokens() == 0) return;
  const Mla& h = args.heads;
  SLUICE_CHECK(args.kv->shape().layers[static_cast<size_t>(args.layer)].head_dim ==
               h.kv_lora_rank + h.qk_rope_head_dim);
  SLUICE_CHECK(UpOf(args).num_heads() == h.num_heads && args.out->cols() == int64_t{h.num_heads} * h.v_head_dim);
  const RowChoice expanded{RowChoice::Form::kExpanded};
  const RowChoice absorbed{RowChoice::Form::kAbsorbed};
  // Also where this step has no such rows: the first step reserves for both forms.
  if (context.expands_latents) RunExpanded(context, args, expanded);
  RunAbsorbed(context, args, absorbed);
}

void CpuMla::FindRows(const CpuContext& context, const RowChoice& choice) {
  ranges_.clear();
  ranges_.reserve(static_cast<size_t>(std::max(context.num_tokens(), context.max_tokens)));
  for (size_t s = 0; s < context.batch.context_lens.size(); ++s) {
    RowRange rows = choice.RowsOf(context.batch, s);
    while (rows.first < rows.end) {
      const bool joins =
          !ranges_.empty() && ranges_.back().end == rows.first && ranges_.back().end - ranges_.back().first < kRowBlock;
      if (!joins) ranges_.push_back({rows.first, rows.first});
      RowRange& range = ranges_.back();
      range.end = rows.first = std::min(rows.end, range.first + kRowBlock);
    }
  }
}

void CpuMla::RunAbsorbed(CpuContext& context, const MlaAttentionArgs& args, const RowChoice& rows) {
  const Mla& h = args.heads;
  const CpuMlaUp& up = UpOf(args);
  const CpuActivations& q = RowsOf(args.q);
  const int head_dim = h.qk_nope_head_dim + h.qk_rope_head_dim;
  const int value_dim = h.kv_lora_rank, key_dim = value_dim + h.qk_rope_head_dim;
  FindRows(context, rows);
  LatentRows latents{Operand::TypeFor(context, up.value(0)), nullptr, 0, h.num_heads};
  latents.slot_bytes =
      RoundUp64(std::max(static_cast<size_t>(value_dim) * sizeof(float), ActivationRowBytes(latents.type, value_dim)));
  const size_t capacity = static_cast<size_t>(std::max(context.num_tokens(), context.max_tokens));
  latents.data = latents_.Reserve<uint8_t>(capacity * static_cast<size_t>(h.num_heads) * latents.slot_bytes);
  MultiplyHeads(
      context, ranges_, h.num_heads, [&](int head) -> const PackedLinear& { return up.absorb(head); },
      [&](int head) {
        const uint8_t* first = reinterpret_cast<const uint8_t*>(q.row(0) + int64_t{head} * head_dim);
        return ActivationRows{ActivationType::kF32, first, static_cast<size_t>(q.stride()) * sizeof(float)};
      },
      [&](int64_t row, int head) { return reinterpret_cast<float*>(latents.at(row, head)); });

  const int groups = (h.num_heads + kLatentLanes - 1) / kLatentLanes;
  const int unit_groups = std::min(groups, kUnitLaneGroups);
  AttentionLayout layout;
  layout.mask = args.mask;
  layout.rows = rows;
  layout.num_heads = (groups + unit_groups - 1) / unit_groups;
  layout.rows_per_unit = kUnitLaneGroups / unit_groups;
  layout.row_floats = int64_t{unit_groups} * (kLatentHeader + value_dim * kLatentLanes);
  const size_t bytes = AbsorbedBuffers::Bytes(layout.rows_per_unit, unit_groups, key_dim, value_dim);
  uint8_t* memory = worker_buffers_.Reserve<uint8_t>(bytes * static_cast<size_t>(context.num_threads()));
  planner_.Run(context, layout, [&](const AttentionUnit& unit, int worker) {
    const AbsorbedBuffers buffers(memory + bytes * static_cast<size_t>(worker), layout.rows_per_unit, unit_groups,
                                  key_dim, value_dim);
    return AbsorbedRunner(context, args, unit, buffers, latents);
  });

  CpuActivations& out = RowsOf(args.out);
  MultiplyHeads(
      context, ranges_, h.num_heads, [&](int head) -> const PackedLinear& { return up.value(head); },
      [&](int head) { return latents.Head(head); },
      [&](int64_t row, int head) { return out.row(row) + int64_t{head} * h.v_head_dim; });
}

void CpuMla::RunExpanded(CpuContext& context, const MlaAttentionArgs& args, const RowChoice& rows) {
  const Mla& h = args.heads;
  AttentionArgs attention;
  attention.q = args.q;
  attention.heads = {h.num_heads, h.num_heads, h.qk_nope_head_dim + h.qk_rope_head_dim, h.v_head_dim};
  attention.scale = args.scale;
  attention.mask = args.mask;
  attention.out = args.out;

  const int head_dim = attention.heads.head_dim;
  const int state_stride = kStateHeader + (h.v_head_dim + 15) / 16 * 16;
  AttentionLayout layout;
  layout.mask = args.mask;
  layout.rows = rows;
  layout.num_heads = h.num_heads;
  layout.rows_per_unit = kExpandedRows;
  layout.row_floats = state_stride;
  const size_t tile_bytes = ExpandedTiles::Bytes(args);
  const size_t bytes = UnitBuffers::Bytes(kExpandedRows, head_dim, state_stride, tile_bytes);
  uint8_t* memory = worker_buffers_.Reserve<uint8_t>(bytes * static_cast<size_t>(context.num_threads()));
  planner_.Run(context, layout, [&](const AttentionUnit& unit, int worker) {
    const UnitBuffers buffers(memory + bytes * static_cast<size_t>(worker), kExpandedRows, head_dim, state_stride,
                              tile_bytes);
    return UnitRunner<ExpandedTiles>(context, attention, unit, buffers,
                                     ExpandedTiles(context, args, unit, buffers.tile));
  });
}

}  // namespace sluice
