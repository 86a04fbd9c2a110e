#include "engine/ops/cpu/project.h"

#include <cstring>

#include "engine/ops/cpu/linear.h"

namespace sluice {
namespace {

// y[i] += tile[i] (+ bias[i])
void AddTile(const float* tile, const float* bias, int count, float* y) {
  if (bias == nullptr) {
    for (int i = 0; i < count; ++i) y[i] += tile[i];
  } else {
    for (int i = 0; i < count; ++i) y[i] += tile[i] + bias[i];
  }
}

}  // namespace

void AddLinearToResidual(CpuContext& context, const PackedLinear& weights, const Operand& operand, const float* bias,
                         const std::optional<NormArgs>& post_norm, CpuActivations& x) {
  const int num_rows = context.num_tokens();
  if (!post_norm) {
    RunLinear(context, weights, operand, num_rows, {}, [&](const PanelView& panel, int row, const float* tile) {
      const float* panel_bias = bias != nullptr ? bias + panel.first_row : nullptr;
      AddTile(tile, panel_bias, panel.num_rows, x.row(row) + panel.first_row);
    });
    return;
  }
  // The norm needs the whole row.
  const int32_t capacity = std::max(num_rows, context.max_tokens);
  float* wide = context.wide_rows.Reserve<float>(static_cast<size_t>(capacity) * static_cast<size_t>(x.stride()));
  RunLinear(context, weights, operand, num_rows, {}, [&](const PanelView& panel, int row, const float* tile) {
    std::memcpy(wide + row * x.stride() + panel.first_row, tile, static_cast<size_t>(panel.num_rows) * sizeof(float));
  });
  ForRows(context, num_rows, [&](int row, int) {
    float* y = wide + row * x.stride();
    if (bias != nullptr) context.floats.add(bias, x.cols(), y);
    context.Norm(*post_norm, y, x.cols(), y);
    context.floats.add(y, x.cols(), x.row(row));
  });
}

void CpuProject(CpuContext& context, const ProjectArgs& args) {
  if (context.num_tokens() == 0) return;
  const PackedLinear& weights = PackedOf(args.weight);
  const CpuActivations& in = RowsOf(args.in);
  SLUICE_CHECK(weights.k() == in.cols() && weights.num_rows() == args.x->cols());
  const Operand operand(context, {in.row(0), in.stride(), nullptr, nullptr}, context.num_tokens(), weights);
  AddLinearToResidual(context, weights, operand, DataOf(args.bias), args.post_norm, RowsOf(args.x));
}

}  // namespace sluice
