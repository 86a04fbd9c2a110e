// Toy models in files of other forms (engine/model/tensor_form.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "engine/model/tensor_naming.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {

inline constexpr TensorForm kStackedRows{.rows = TensorRows::kStacked};
inline constexpr TensorForm kInterleavedRows{.rows = TensorRows::kInterleaved};

// Toy specs with everything that a form can concern: biases, experts with biases, latent attention.
ModelSpec BiasedSpec();
ModelSpec MoeSpec();
ModelSpec MlaSpec();

// A model whose file has some roles in forms of their own, F32; the others as MakeToyModel wrote them. A pattern with
// "merged" in it names a tensor whose leading axis is merged with the rows. Points into `model`.
class FormedModel {
 public:
  FormedModel(const ToyModel& model, std::vector<TensorName> forms);

  TensorNaming naming() const { return {.names = names_}; }

  std::vector<TensorView> tensors;

 private:
  // The tensors of all roles of a pattern, straight from its definition.
  void Write(const ToyModel& model, absl::string_view pattern, int32_t layer);

  std::vector<TensorName> names_;
  std::map<std::pair<TensorRole, int32_t>, std::vector<int64_t>> shapes_;
  std::deque<std::vector<uint8_t>> bytes_;
};

}  // namespace sluice::testing
