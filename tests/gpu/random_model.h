// A model of any spec with random bf16 weights, made in seconds: all matrices are stretches of one pool.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/tensor_view.h"
#include "engine/model/spec.h"

namespace sluice::cuda_testing {

struct RandomModel {
  std::vector<TensorView> tensors;  // named as ToyTensorNames (tests/model/toy_model.h)
  // Behind them.
  std::vector<uint16_t> pool;
  std::vector<float> ones;  // norm weights

  RandomModel() = default;
  RandomModel(RandomModel&&) = default;  // a copy's views would point into the original
};

// REQUIRES: ValidateModelSpec(spec) is OK.
RandomModel MakeRandomModel(const ModelSpec& spec);

}  // namespace sluice::cuda_testing
