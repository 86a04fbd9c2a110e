#include "engine/ops/cpu/qkv.h"

#include <cmath>
#include <cstring>

#include "engine/ops/cpu/kv_cache.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/operand.h"
#include "engine/ops/cpu/rope.h"

namespace sluice {
namespace {

// A head of the output: `head` counts within its kind; `column` is where it starts in q|k|v.
enum class Kind { kQuery, kKey, kValue };
struct Head {
  Kind kind;
  int head;
  int64_t column;
  int dim;
};

// All that follows the matrix for one row: bias, QK-norm, rotation, temperature, the cache.
class Finisher {
 public:
  Finisher(CpuContext& context, const QkvArgs& args)
      : context_(context),
        args_(args),
        kv_(static_cast<const CpuKvCache&>(*args.kv)),
        rope_(args.rope ? static_cast<const CpuRope*>(args.rope->table) : nullptr),
        bias_(DataOf(args.bias)) {
    if (rope_ == nullptr) return;
    SLUICE_CHECK(args.rope->num_rotary == rope_->num_rotary() && rope_->num_rotary() <= args.heads.head_dim);
    rope_->Prepare(context, args.rope->layout);
  }

  // y[head.dim] holds the head's product; q stays there, k and v go to the cache. For norms over single heads.
  void FinishHead(const Head& head, int row, float* y) const {
    if (bias_ != nullptr) context_.floats.add(bias_ + head.column, head.dim, y);
    if (head.kind != Kind::kValue) {
      if (!args_.heads.qk_norm.after_rope) NormHead(head, y);
      Place(head, row, y);
      if (args_.heads.qk_norm.after_rope) NormHead(head, y);
    }
    Store(head, row, y);
  }

  // y[q|k|v], for every kind of norm. k and v go to the cache.
  void FinishRow(int row, float* y) const {
    const Gqa& h = args_.heads;
    const int64_t q_size = int64_t{h.num_heads} * h.head_dim, k_size = int64_t{h.num_kv_heads} * h.head_dim;
    if (args_.heads.qk_norm.kind != QkNormKind::kFullWidth) {
      for (int i = 0; i < NumHeads(); ++i) FinishHead(HeadAt(i), row, y + HeadAt(i).column);
      return;
    }
    if (bias_ != nullptr) context_.floats.add(bias_, q_size + k_size + int64_t{h.num_kv_heads} * h.value_head_dim, y);
    const auto norm = [&] {
      const NormParams& params = h.qk_norm.norm;
      context_.floats.norm(params, y, q_size, DataOf(args_.q_norm), nullptr, y);
      context_.floats.norm(params, y + q_size, k_size, DataOf(args_.k_norm), nullptr, y + q_size);
    };
    if (!args_.heads.qk_norm.after_rope) norm();
    for (int i = 0; i < h.num_heads + h.num_kv_heads; ++i) Place(HeadAt(i), row, y + HeadAt(i).column);
    if (args_.heads.qk_norm.after_rope) norm();
    for (int i = 0; i < NumHeads(); ++i) Store(HeadAt(i), row, y + HeadAt(i).column);
  }

  int NumHeads() const { return args_.heads.num_heads + 2 * args_.heads.num_kv_heads; }
  Head HeadAt(int i) const {
    const Gqa& h = args_.heads;
    if (i < h.num_heads) return {Kind::kQuery, i, int64_t{i} * h.head_dim, h.head_dim};
    const int key = i - h.num_heads, value = key - h.num_kv_heads;
    if (value < 0) return {Kind::kKey, key, int64_t{i} * h.head_dim, h.head_dim};
    const int64_t values = int64_t{h.num_heads + h.num_kv_heads} * h.head_dim;
    return {Kind::kValue, value, values + int64_t{value} * h.value_head_dim, h.value_head_dim};
  }

 private:
  void NormHead(const Head& head, float* y) const {
    const QkNormSpec& n = args_.heads.qk_norm;
    if (n.kind == QkNormKind::kNone) return;
    const VectorWeights* weight = head.kind == Kind::kQuery ? args_.q_norm : args_.k_norm;
    context_.floats.norm(n.norm, y, head.dim, n.kind == QkNormKind::kPerHead ? DataOf(weight) : nullptr, nullptr, y);
  }

  void Place(const Head&, int row, float* y) const {
    if (rope_ == nullptr) return;
    context_.floats.rope(args_.rope->layout, rope_->row(args_.rope->layout, row), rope_->num_rotary(), y);
  }

  void Store(const Head& head, int row, float* y) const {
    const auto index = static_cast<size_t>(row);
    if (head.kind == Kind::kQuery) {
      if (!args_.query_temperature_floor) return;
      const double steps = std::floor((context_.batch.positions[index] + 1) / double{*args_.query_temperature_floor});
      const float t = static_cast<float>(1 + double{args_.query_temperature_coef} * std::log1p(steps));
      for (int i = 0; i < head.dim; ++i) y[i] *= t;
      return;
    }
    const int32_t slot = context_.batch.kv_groups[static_cast<size_t>(args_.kv_group)].slot_mapping[index];
    if (head.kind == Kind::kKey) return kv_.WriteKey(context_.floats, args_.layer, head.head, slot, y);
    kv_.WriteValue(context_.floats, args_.layer, head.head, slot, y);
  }

  CpuContext& context_;
  const QkvArgs& args_;
  const CpuKvCache& kv_;
  const CpuRope* rope_;
  const float* bias_;
};

// Whole heads fall on whole panels, so that a worker can finish the heads of its panels at once.
bool HeadsFitPanels(const QkvArgs& args, const PackedLinear& weights) {
  return args.heads.qk_norm.kind != QkNormKind::kFullWidth && args.heads.head_dim % kPanelRows == 0 &&
         args.heads.value_head_dim % kPanelRows == 0 && weights.num_panels() * kPanelRows == weights.num_rows();
}

void QkvByHead(CpuContext& context, const QkvArgs& args, const PackedLinear& weights, const Operand& operand,
               const Finisher& finisher) {
  CpuActivations& q = RowsOf(args.q);
  const int largest = std::max(args.heads.head_dim, args.heads.value_head_dim);
  const size_t scratch_size = size_t{kRowBlock} * static_cast<size_t>(largest);
  float* scratch = context.worker_scratch.Reserve<float>(scratch_size * static_cast<size_t>(context.num_threads()));
  ForPanelGroups(context, finisher.NumHeads(), context.num_tokens(), {},
                 [&](int64_t index, int first_row, int num_rows, int worker) {
                   const Head head = finisher.HeadAt(static_cast<int>(index));
                   // Queries are finished where they are to stay, keys and values on the side.
                   float* base = scratch + scratch_size * static_cast<size_t>(worker);
                   int64_t stride = head.dim;
                   if (head.kind == Kind::kQuery) base = q.row(first_row) + head.column, stride = q.stride();
                   for (int part = 0; part < head.dim / kPanelRows; ++part) {
                     RunRows(context, weights, operand, head.column / kPanelRows + part, first_row, num_rows, worker,
                             [&](const PanelView&, int row, const float* tile) {
                               float* y = base + (row - first_row) * stride + part * kPanelRows;
                               std::memcpy(y, tile, kPanelRows * sizeof(float));
                             });
                   }
                   for (int r = 0; r < num_rows; ++r) finisher.FinishHead(head, first_row + r, base + r * stride);
                 });
}

void QkvByRow(CpuContext& context, const QkvArgs& args, const PackedLinear& weights, const Operand& operand,
              const Finisher& finisher) {
  CpuActivations& q = RowsOf(args.q);
  const int64_t stride = CpuActivations::Stride(weights.num_rows());
  const int32_t capacity = std::max(context.num_tokens(), context.max_tokens);
  float* wide = context.wide_rows.Reserve<float>(static_cast<size_t>(capacity) * static_cast<size_t>(stride));
  RunLinear(
      context, weights, operand, context.num_tokens(), {}, [&](const PanelView& panel, int row, const float* tile) {
        std::memcpy(wide + row * stride + panel.first_row, tile, static_cast<size_t>(panel.num_rows) * sizeof(float));
      });
  ForRows(context, context.num_tokens(), [&](int row, int) {
    float* y = wide + row * stride;
    finisher.FinishRow(row, y);
    std::memcpy(q.row(row), y, static_cast<size_t>(q.cols()) * sizeof(float));
  });
}

}  // namespace

void CpuQkv(CpuContext& context, const QkvArgs& args) {
  if (context.num_tokens() == 0) return;
  const PackedLinear& weights = PackedOf(args.qkv);
  const Gqa& h = args.heads;
  SLUICE_CHECK(weights.num_rows() ==
               int64_t{h.num_heads + h.num_kv_heads} * h.head_dim + int64_t{h.num_kv_heads} * h.value_head_dim);
  SLUICE_CHECK(RowsOf(args.q).cols() == int64_t{h.num_heads} * h.head_dim && weights.k() == args.x->cols());
  const Finisher finisher(context, args);
  const CpuActivations& x = RowsOf(args.x);
  const RowSource source{x.row(0), x.stride(), nullptr, args.norm ? &*args.norm : nullptr};
  const Operand operand(context, source, context.num_tokens(), weights);
  if (HeadsFitPanels(args, weights)) {
    QkvByHead(context, args, weights, operand, finisher);
  } else {
    QkvByRow(context, args, weights, operand, finisher);
  }
}

}  // namespace sluice
