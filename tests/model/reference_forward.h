// The whole forward pass once more, in doubles and plain loops straight from the formulas, for one sequence without a
// cache. It shares nothing with the engine but the description of the model.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/model/toy_model.h"

namespace sluice::testing {

// [num tokens][vocab]. `routing_margin`: by how much the weakest choice of an expert or a group was above the best one
// that lost; infinite without a mixture of experts.
std::vector<std::vector<double>> ReferenceLogits(const ToyModel& model, const std::vector<int32_t>& tokens,
                                                 double* routing_margin = nullptr);

}  // namespace sluice::testing
