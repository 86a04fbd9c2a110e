// Mixtures of experts on the CPU. A step reads the matrices of each visited expert once, whatever the number of rows.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

class CpuExperts : public ExpertWeights {
 public:
  // REQUIRES: at least one, all of the same shape.
  explicit CpuExperts(std::vector<PackedLinear> packed) : packed_(std::move(packed)) {}
  // Errors: as ValidateExperts and PackedLinear::Pack.
  static absl::StatusOr<std::unique_ptr<CpuExperts>> Load(CpuContext& context,
                                                          std::span<const std::vector<TensorView>> experts,
                                                          LinearLayout layout);

  int32_t num_experts() const override { return static_cast<int32_t>(packed_.size()); }
  int64_t out_features() const override { return packed_[0].num_rows(); }
  int64_t in_features() const override { return packed_[0].k(); }
  int64_t resident_bytes() const override { return num_experts() * packed_[0].bytes(); }
  const PackedLinear& packed(int32_t expert) const { return packed_[static_cast<size_t>(expert)]; }

 private:
  std::vector<PackedLinear> packed_;
};

// Scratch of CpuMoe, kept between calls.
struct MoeScratch {
  AlignedBuffer normed;       // [rows] f32
  AlignedBuffer logits;       // [rows][num_experts]
  AlignedBuffer choices;      // [rows][num_experts_per_token]
  AlignedBuffer next_places;  // [num_experts]
  AlignedBuffer places;       // [rows * (num_experts_per_token + 1)]
  AlignedBuffer visits;       // [num_experts + 1]
  AlignedBuffer inputs;       // [places] rows for gate and up
};

void CpuMoe(CpuContext& context, const MoeArgs& args, MoeScratch& scratch);

}  // namespace sluice
