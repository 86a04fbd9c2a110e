// What a kind of file calls the tensors of a model: tables of patterns by role, one per architecture and file format.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/model/tensor_form.h"
#include "engine/model/tensor_roles.h"

namespace sluice {

// In `pattern`, "{layer}" stands for the layer's number, "{expert}" for that of one of many tensors, and "{model}" for
// the prefix of the naming. A role may come several times: the first entry whose tensor the file has is the one.
struct TensorName {
  TensorRole role;
  absl::string_view pattern;
  TensorForm form = {};
};

struct TensorNaming {
  absl::Span<const TensorName> names = {};
  // What "{model}" may be; the first with which the file has its token embedding holds for all its tensors.
  absl::Span<const absl::string_view> prefixes = {};
  // Tensors that a file may hold and that no role needs. "*" stands for any text, "{beyond}" for the number of a layer
  // that the model does not have. Any other tensor without a role is an error: leaving it out would change the model.
  absl::Span<const absl::string_view> ignored = {};

  bool empty() const { return names.empty(); }
};

// A pattern with its places filled in. `layer` and `expert` are -1 where there is none.
std::string ExpandTensorName(absl::string_view pattern, absl::string_view prefix, int32_t layer, int32_t expert = -1);

// Whether a model of `num_layers` layers can do without the tensor.
bool IsIgnoredTensor(const TensorNaming& naming, absl::string_view name, int32_t num_layers);

}  // namespace sluice
