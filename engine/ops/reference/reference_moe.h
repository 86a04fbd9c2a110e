// Mixtures of experts, one row after the other.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ops/ops.h"

namespace sluice::reference {

absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                           LinearLayout layout);
void Moe(int num_tokens, const MoeArgs& args);

}  // namespace sluice::reference
