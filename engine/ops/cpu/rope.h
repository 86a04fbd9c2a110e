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
  CpuRope(const RopeTable& table, int32_t max_position) : table_(table), max_position_(max_position) {
    const auto* longrope = std::get_if<LongRopeRule>(&table.length_rule);
    SLUICE_CHECK(longrope == nullptr || longrope->long_inv_freq.size() == table.inv_freq.size());
  }

  // Makes the rows of this step, unless that has been done. To be called before row().
  // REQUIRES: the step's rope_classes if the frequencies depend on the length.
  void Prepare(CpuContext& context, RopeLayout layout) const;
  // For FloatKernels::rope, which describes it.
  const float* row(RopeLayout layout, int row) const {
    return steps_[static_cast<size_t>(layout)].rows.data<float>() + row * 2 * num_rotary();
  }
  int num_rotary() const { return 2 * static_cast<int>(table_.inv_freq.size()); }

 private:
  struct Step {
    uint64_t step = 0;
    AlignedBuffer rows;  // [rows][2 * num_rotary]
  };
  // The frequencies of the sequence that is `s`-th in the step; decoding sequences keep their places for long.
  struct SequenceFreq {
    int32_t rope_class = -1;
    std::vector<float> inv_freq;
  };

  void PrepareSequences(const CpuContext& context) const;
  void MakeRow(RopeLayout layout, int64_t position, const std::vector<float>& inv_freq, float* out) const;

  const RopeTable table_;
  const int32_t max_position_;
  // Caches of the running step.
  mutable std::array<Step, 2> steps_;            // by RopeLayout
  mutable std::vector<SequenceFreq> sequences_;  // empty unless the table depends on the length
};

}  // namespace sluice
