#include "engine/ops/cpu/ffn.h"

#include <algorithm>

#include "engine/ops/cpu/hidden_block.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/operand.h"
#include "engine/ops/cpu/project.h"

namespace sluice {
namespace {

HiddenRows ReserveHidden(CpuContext& context, const PackedLinear& down) {
  HiddenRows rows;
  rows.type = Operand::TypeFor(context, down);
  rows.stride_bytes = RowStride(rows.type, down.k());
  const int32_t capacity = std::max(context.num_tokens(), context.max_tokens);
  rows.data = context.hidden_rows.Reserve<uint8_t>(static_cast<size_t>(capacity) * rows.stride_bytes);
  return rows;
}

}  // namespace

void CpuFfn(CpuContext& context, const DenseFfnArgs& args) {
  if (context.num_tokens() == 0) return;
  const PackedLinear& up = PackedOf(args.gate_up);
  const PackedLinear& down = PackedOf(args.down);
  SLUICE_CHECK(up.num_rows() == down.k() * (args.gated ? 2 : 1) && up.k() == args.x->cols());
  SLUICE_CHECK(down.num_rows() == args.x->cols());
  const HiddenLayer layer{&up,       DataOf(args.gate_up_bias), down.k(), args.gated, args.activation, args.alpha,
                          args.limit};
  const HiddenRows hidden = ReserveHidden(context, down);
  float* scratch = context.worker_scratch.Reserve<float>(kHiddenScratch * static_cast<size_t>(context.num_threads()));
  const CpuActivations& x = RowsOf(args.x);
  const RowSource source{x.row(0), x.stride(), nullptr, args.norm ? &*args.norm : nullptr};
  const Operand operand(context, source, context.num_tokens(), up);
  ForPanelGroups(context, layer.num_blocks(), context.num_tokens(), down.data(),
                 [&](int64_t block, int first, int count, int worker) {
                   const uint8_t* weights = up.panel(layer.first_panel(block)).data;
                   MakeHiddenBlock(context, layer, block, operand.Rows(worker, weights).From(first), count,
                                   hidden.From(first), scratch + kHiddenScratch * static_cast<size_t>(worker));
                 });
  AddLinearToResidual(context, down, Operand(context, hidden), DataOf(args.down_bias), args.post_norm, RowsOf(args.x));
}

}  // namespace sluice
