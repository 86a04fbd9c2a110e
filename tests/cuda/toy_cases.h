// Toy models of every kind of attention and feed-forward that runs on a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>

#include "engine/base/tensor_type.h"
#include "engine/model/spec.h"

namespace sluice::testing {

struct ToyCase {
  const char* name;
  std::function<void(ModelSpec*)> change;
  TensorType weights = TensorType::kBF16;
  uint32_t seed = 1;  // of weights that leave enough rows clear, and routers with margins
};
inline void PrintTo(const ToyCase& c, std::ostream* os) { *os << c.name; }

std::span<const ToyCase> ToyCases();

// ToySpec, changed, with a vocabulary of 32.
ModelSpec MakeToySpec(const ToyCase& c);

}  // namespace sluice::testing
