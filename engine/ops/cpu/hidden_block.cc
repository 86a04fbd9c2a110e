#include "engine/ops/cpu/hidden_block.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/cpu/run_panel.h"

namespace sluice {
namespace {

void StoreBlock(const CpuContext& context, const float* values, int width, int num_rows, int64_t block,
                const HiddenRows& out) {
  const size_t offset = ActivationRowBytes(out.type, block * kHiddenBlock);
  for (int r = 0; r < num_rows; ++r) {
    uint8_t* to = out.From(r).data + offset;
    if (out.type == ActivationType::kF32) {
      std::memcpy(to, values + r * kHiddenBlock, static_cast<size_t>(width) * sizeof(float));
    } else {
      context.linear.quantize[static_cast<int>(out.type)](values + r * kHiddenBlock, kHiddenBlock, to);
    }
  }
}

}  // namespace

void MakeHiddenBlock(const CpuContext& context, const HiddenLayer& layer, int64_t block, const ActivationRows& in,
                     int num_rows, const HiddenRows& out, float* scratch) {
  float* gate = scratch;
  float* up = scratch + kHiddenScratch / 2;
  const int64_t begin = block * kHiddenBlock;
  const int width = static_cast<int>(std::min<int64_t>(layer.size - begin, kHiddenBlock));
  const int values = layer.values_per_panel();
  for (int offset = 0; offset < width; offset += values) {
    const PanelView panel = layer.weights->panel(layer.first_panel(block) + offset / values);
    RunPanel(context.linear, panel, layer.weights->k(), in, num_rows, [&](int first, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r, tile += kPanelRows) {
        const int at = (first + r) * kHiddenBlock + offset;
        std::memcpy(gate + at, tile, static_cast<size_t>(values) * sizeof(float));
        if (layer.gated) std::memcpy(up + at, tile + values, static_cast<size_t>(values) * sizeof(float));
      }
    });
  }
  if (layer.bias != nullptr) {
    for (int r = 0; r < num_rows; ++r) {
      context.floats.add(layer.bias + begin, width, gate + r * kHiddenBlock);
      if (layer.gated) context.floats.add(layer.bias + layer.size + begin, width, up + r * kHiddenBlock);
    }
  }
  context.floats.activate(layer.activation, layer.alpha, layer.limit, gate, layer.gated ? up : nullptr,
                          int64_t{num_rows} * kHiddenBlock, gate);
  StoreBlock(context, gate, width, num_rows, block, out);
}

}  // namespace sluice
