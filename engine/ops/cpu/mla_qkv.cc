#include "engine/ops/cpu/mla_qkv.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/cpu/kv_cache.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/operand.h"
#include "engine/ops/cpu/rope.h"

namespace sluice {
namespace {

// Writes all rows of operand * weights, `stride` floats apart.
void Multiply(CpuContext& context, const PackedLinear& weights, const Operand& operand, int64_t stride, float* out) {
  RunLinear(
      context, weights, operand, context.num_tokens(), {}, [&](const PanelView& panel, int row, const float* tile) {
        std::memcpy(out + row * stride + panel.first_row, tile, static_cast<size_t>(panel.num_rows) * sizeof(float));
      });
}

}  // namespace

void CpuMlaQkv(CpuContext& context, const MlaQkvArgs& args) {
  if (context.num_tokens() == 0) return;
  const Mla& h = args.heads;
  const PackedLinear& down = PackedOf(args.down);
  const CpuActivations& x = RowsOf(args.x);
  CpuActivations& q = RowsOf(args.q);
  const CpuKvCache& kv = static_cast<const CpuKvCache&>(*args.kv);
  const CpuRope& rope = static_cast<const CpuRope&>(*args.rope.table);
  const int head_dim = h.qk_nope_head_dim + h.qk_rope_head_dim;
  const int64_t q_size = h.q_lora_rank.has_value() ? *h.q_lora_rank : q.cols();  // before the latent in a row of `down`
  SLUICE_CHECK(down.k() == x.cols() && down.num_rows() == q_size + h.kv_lora_rank + h.qk_rope_head_dim);
  SLUICE_CHECK(q.cols() == int64_t{h.num_heads} * head_dim);
  SLUICE_CHECK(args.rope.num_rotary == rope.num_rotary() && rope.num_rotary() <= h.qk_rope_head_dim);
  rope.Prepare(context, args.rope.layout);
  const auto rotate = [&](int row, float* part) {
    context.floats.rope(args.rope.layout, rope.row(args.rope.layout, row), rope.num_rotary(), part);
  };
  const auto rotate_queries = [&](int row) {
    for (int i = 0; i < h.num_heads; ++i) rotate(row, q.row(row) + i * head_dim + h.qk_nope_head_dim);
  };

  const int64_t stride = CpuActivations::Stride(down.num_rows());
  const int32_t capacity = std::max(context.num_tokens(), context.max_tokens);
  float* wide = context.wide_rows.Reserve<float>(static_cast<size_t>(capacity) * static_cast<size_t>(stride));
  const RowSource source{x.row(0), x.stride(), nullptr, args.norm ? &*args.norm : nullptr};
  Multiply(context, down, Operand(context, source, context.num_tokens(), down), stride, wide);
  const std::span<const int32_t> slots = context.batch.kv_groups[static_cast<size_t>(args.kv_group)].slot_mapping;
  ForRows(context, context.num_tokens(), [&](int row, int) {
    float* y = wide + row * stride;
    if (args.bias != nullptr) context.floats.add(DataOf(args.bias), down.num_rows(), y);
    float* latent = y + q_size;
    context.Norm(args.kv_latent_norm, latent, h.kv_lora_rank, latent);
    rotate(row, latent + h.kv_lora_rank);
    kv.WriteKey(context.floats, args.layer, 0, slots[static_cast<size_t>(row)], latent);
    if (h.q_lora_rank.has_value()) return;
    std::memcpy(q.row(row), y, static_cast<size_t>(q_size) * sizeof(float));
    rotate_queries(row);
  });
  if (!h.q_lora_rank.has_value()) return;

  const PackedLinear& up = PackedOf(args.q_up);
  SLUICE_CHECK(up.k() == *h.q_lora_rank && up.num_rows() == q.cols());
  const RowSource latents{wide, stride, nullptr, &args.q_latent_norm};
  Multiply(context, up, Operand(context, latents, context.num_tokens(), up), q.stride(), q.row(0));
  ForRows(context, context.num_tokens(), [&](int row, int) { rotate_queries(row); });
}

}  // namespace sluice
