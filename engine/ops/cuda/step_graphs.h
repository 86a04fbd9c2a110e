// CUDA graphs of generating steps, in which every sequence has one row and asks for its logits: one for each of a fixed
// set of shapes, all made at the start, so that no step waits for one and memory does not grow. A step runs in the
// smallest shape that holds it, padded with rows that kernels pass over.
//
// Shapes are the numbers of rows 1, 2, 4, 8, then multiples of 8 up to 256, then of 16, up to the most there can be (11
// for 64 sequences, 35 for 256), times a few widths of block tables, which are copied to the device in every step: the
// widest and, a factor of 4 apart, narrower ones of at least 16 blocks. Where that makes more than kMost shapes the
// factor is larger. A CUDA graph costs one run through the model's launches on the host, some 5 to 10 ms for 32
// layers, and a few MiB of the device's memory for what the driver keeps of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ops/cuda/device.h"
#include "engine/ops/cuda/step_buffers.h"
#include "engine/ops/ops.h"

namespace sluice {

class StepGraphs {
 public:
  static constexpr int32_t kMost = 128;  // while there is more than one width

  // Chooses the shapes for steps within `limits`. What was captured is gone.
  void SetLimits(const StepLimits& limits);

  // By rows, then by width.
  const std::vector<StepShape>& shapes() const { return shapes_; }
  // The smallest of them that holds a step of `shape`; none if it is no generating step, or larger than all.
  std::optional<StepShape> ShapeFor(const StepShape& shape) const;

  void Add(const StepShape& shape, std::unique_ptr<Device::CapturedGraph> graph) {
    graphs_[shape] = std::move(graph);
  }
  // Null if there is none.
  const Device::CapturedGraph* Find(const StepShape& shape) const {
    const auto found = graphs_.find(shape);
    return found != graphs_.end() ? found->second.get() : nullptr;
  }

 private:
  std::vector<int32_t> rows_, widths_;  // ascending
  std::vector<StepShape> shapes_;
  std::map<StepShape, std::unique_ptr<Device::CapturedGraph>> graphs_;
};

}  // namespace sluice
