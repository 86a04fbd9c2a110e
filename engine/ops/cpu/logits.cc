#include "engine/ops/cpu/logits.h"

#include <cstring>

#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/operand.h"

namespace sluice {

void CpuEmbed(CpuContext& context, const LinearWeights& table, float scale, CpuActivations& x) {
  const PackedLinear& weights = PackedOf(&table);
  SLUICE_CHECK(weights.k() == x.cols());
  ForRows(context, context.num_tokens(), [&](int row, int) {
    float* y = x.row(row);
    weights.UnpackRow(context.batch.token_ids[static_cast<size_t>(row)], y);
    if (scale == 1) return;
    for (int64_t i = 0; i < x.cols(); ++i) y[i] *= scale;
  });
}

void CpuAddPositions(CpuContext& context, const LinearWeights& table, CpuActivations& x) {
  const PackedLinear& weights = PackedOf(&table);
  SLUICE_CHECK(weights.k() == x.cols());
  const size_t stride = static_cast<size_t>(x.stride());
  float* scratch = context.worker_scratch.Reserve<float>(stride * static_cast<size_t>(context.num_threads()));
  ForRows(context, context.num_tokens(), [&](int row, int worker) {
    float* position = scratch + stride * static_cast<size_t>(worker);
    weights.UnpackRow(context.batch.positions[static_cast<size_t>(row)], position);
    context.floats.add(position, x.cols(), x.row(row));
  });
}

void CpuLogits(CpuContext& context, const LogitsArgs& args, float* logits, int64_t stride) {
  const int num_rows = static_cast<int>(context.batch.logits_rows.size());
  if (num_rows == 0) return;
  const PackedLinear& weights = PackedOf(args.head);
  const CpuActivations& x = RowsOf(args.x);
  SLUICE_CHECK(weights.k() == x.cols() && weights.num_rows() <= stride);
  const RowSource source{x.row(0), x.stride(), context.batch.logits_rows.data(), &args.norm};
  const Operand operand(context, source, num_rows, weights);
  RunLinear(context, weights, operand, num_rows, {}, [&](const PanelView& panel, int row, const float* tile) {
    float* out = logits + row * stride + panel.first_row;
    std::memcpy(out, tile, static_cast<size_t>(panel.num_rows) * sizeof(float));
    if (args.scale != 1) {
      for (int i = 0; i < panel.num_rows; ++i) out[i] *= args.scale;
    }
    if (args.softcap) context.floats.softcap(*args.softcap, out, panel.num_rows);
  });
}

}  // namespace sluice
