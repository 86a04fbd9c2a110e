// Small models with random weights, for any spec.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/tensor_view.h"
#include "engine/model/registry.h"
#include "engine/model/spec.h"
#include "engine/model/tensor_roles.h"

namespace sluice::testing {

// Llama-like: 3 layers of width 64, 4 query and 2 KV heads of 16, FFN 96, vocabulary 96, untied, half-split RoPE.
ModelSpec ToySpec();

struct ToyModel {
  ModelSpec spec;
  std::vector<TensorView> tensors;  // named as ToyTensorNames says
  // The values that the tensors stand for.
  std::map<std::pair<TensorRole, int32_t>, std::vector<float>> values;
  std::deque<std::vector<uint8_t>> bytes;  // behind the tensors

  ToyModel() = default;
  ToyModel(ToyModel&&) = default;  // a copy's views would point into the original
};

// Matrices are stored as `type`; rows that are no whole number of its blocks as F32. Vectors are F32: norm weights
// around 1, biases and sinks that matter.
ToyModel MakeToyModel(const ModelSpec& spec, TensorType type, uint32_t seed);

// A name for every role.
TensorNaming ToyTensorNames();

}  // namespace sluice::testing
