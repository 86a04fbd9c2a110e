#include "engine/ops/cpu/ffn.h"

#include <cstring>

#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/operand.h"
#include "engine/ops/cpu/project.h"

namespace sluice {
namespace {

constexpr int kWidth = kBlock;  // hidden values of a chunk: one block of the quantised input of `down`

// Scratch of a worker: gates and ups of a row block, [kRowBlock][kWidth] each.
constexpr size_t kScratch = size_t{2} * kRowBlock * kWidth;

class HiddenRows {
 public:
  HiddenRows(CpuContext& context, const DenseFfnArgs& args)
      : context_(context),
        args_(args),
        up_weights_(PackedOf(args.gate_up)),
        down_weights_(PackedOf(args.down)),
        bias_(DataOf(args.gate_up_bias)),
        hidden_(down_weights_.k()) {
    SLUICE_CHECK(up_weights_.num_rows() == hidden_ * (args.gated ? 2 : 1) && up_weights_.k() == args.x->cols());
    SLUICE_CHECK(down_weights_.num_rows() == args.x->cols());
    rows_.type = Operand::TypeFor(context, down_weights_);
    rows_.stride_bytes = (ActivationRowBytes(rows_.type, hidden_) + 63) / 64 * 64;
    const int32_t capacity = std::max(context.num_tokens(), context.max_tokens);
    out_ = context.hidden_rows.Reserve<uint8_t>(static_cast<size_t>(capacity) * rows_.stride_bytes);
    rows_.data = out_;
    scratch_ = context.worker_scratch.Reserve<float>(kScratch * static_cast<size_t>(context.num_threads()));
  }

  const ActivationRows& rows() const { return rows_; }

  void Make() const {
    const CpuActivations& x = RowsOf(args_.x);
    const RowSource source{x.row(0), x.stride(), nullptr, args_.norm ? &*args_.norm : nullptr};
    const Operand operand(context_, source, context_.num_tokens(), up_weights_);
    ForPanelGroups(context_, (hidden_ + kWidth - 1) / kWidth, context_.num_tokens(), down_weights_.data(),
                   [&](int64_t group, int first, int count, int worker) {
                     float* gate = scratch_ + kScratch * static_cast<size_t>(worker);
                     MakeBlock(operand, group, first, count, worker, gate, gate + kScratch / 2);
                   });
  }

 private:
  void MakeBlock(const Operand& operand, int64_t group, int first, int count, int worker, float* gate,
                 float* up) const {
    const int64_t begin = group * kWidth;
    const int width = static_cast<int>(std::min<int64_t>(hidden_ - begin, kWidth));
    const int values_per_panel = args_.gated ? kPanelRows / 2 : kPanelRows;
    const int64_t first_panel = begin / values_per_panel;
    const int64_t end_panel = (begin + width + values_per_panel - 1) / values_per_panel;
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      const int64_t offset = (panel - first_panel) * values_per_panel;
      RunRows(context_, up_weights_, operand, panel, first, count, worker,
              [&](const PanelView&, int row, const float* tile) {
                const int64_t at = (row - first) * kWidth + offset;
                std::memcpy(gate + at, tile, static_cast<size_t>(values_per_panel) * sizeof(float));
                if (args_.gated) std::memcpy(up + at, tile + values_per_panel, kPanelRows / 2 * sizeof(float));
              });
    }
    if (bias_ != nullptr) {
      for (int r = 0; r < count; ++r) {
        context_.floats.add(bias_ + begin, width, gate + r * kWidth);
        if (args_.gated) context_.floats.add(bias_ + hidden_ + begin, width, up + r * kWidth);
      }
    }
    context_.floats.activate(args_.activation, args_.alpha, args_.limit, gate, args_.gated ? up : nullptr,
                             int64_t{count} * kWidth, gate);
    StoreBlock(group, first, count, width, gate);
  }

  void StoreBlock(int64_t group, int first, int count, int width, const float* values) const {
    for (int r = 0; r < count; ++r) {
      uint8_t* row = out_ + static_cast<size_t>(first + r) * rows_.stride_bytes;
      uint8_t* to = row + ActivationRowBytes(rows_.type, group * kWidth);
      if (rows_.type == ActivationType::kF32) {
        std::memcpy(to, values + r * kWidth, static_cast<size_t>(width) * sizeof(float));
      } else {
        context_.linear.quantize[static_cast<int>(rows_.type)](values + r * kWidth, kWidth, to);
      }
    }
  }

  CpuContext& context_;
  const DenseFfnArgs& args_;
  const PackedLinear& up_weights_;
  const PackedLinear& down_weights_;
  const float* const bias_;
  const int64_t hidden_;
  ActivationRows rows_;
  uint8_t* out_ = nullptr;
  float* scratch_ = nullptr;
};

}  // namespace

void CpuFfn(CpuContext& context, const DenseFfnArgs& args) {
  if (context.num_tokens() == 0) return;
  const HiddenRows hidden(context, args);
  hidden.Make();
  AddLinearToResidual(context, PackedOf(args.down), Operand(context, hidden.rows()), DataOf(args.down_bias),
                      args.post_norm, RowsOf(args.x));
}

}  // namespace sluice
