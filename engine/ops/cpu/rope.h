// Angles of the rotary embedding for the rows of the current step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

// Holds the frequencies only: a step needs cos and sin for its own positions, and a table for every position of a long
// context would take longer to start and more memory than some models.
class CpuRope : public RopeTableData {
 public:
  CpuRope(const RopeTable& table, int32_t max_position)
      : inv_freq_(table.inv_freq), attention_factor_(table.attention_factor), max_position_(max_position) {}

  // Makes the rows of this step, unless that has been done. To be called before row().
  void Prepare(CpuContext& context, RopeLayout layout) const;
  // For FloatKernels::rope, which describes it.
  const float* row(RopeLayout layout, int row) const {
    return steps_[static_cast<size_t>(layout)].rows.data<float>() + row * 2 * num_rotary();
  }
  int num_rotary() const { return 2 * static_cast<int>(inv_freq_.size()); }

 private:
  struct Step {
    uint64_t step = 0;
    AlignedBuffer rows;  // [rows][2 * num_rotary]
  };

  void MakeRow(RopeLayout layout, int64_t position, float* out) const;

  const std::vector<float> inv_freq_;
  const float attention_factor_;
  const int32_t max_position_;
  mutable std::array<Step, 2> steps_;  // by RopeLayout; a cache of the running step
};

}  // namespace sluice
