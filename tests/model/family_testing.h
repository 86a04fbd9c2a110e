// For tests of how the files of a family become a ModelSpec.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/registry.h"
#include "tests/io/gguf_writer.h"

namespace sluice::testing {

// The spec of tests/model/configs/<name>.json; a test failure if there is none.
ModelSpec ReadConfig(const std::string& name);

// The same with keys replaced, each named by its JSON pointer ("/text_config/rope_theta"); kRemoved takes one away.
inline constexpr const char* kRemoved = "(removed)";
absl::StatusOr<ModelSpec> ReadChanged(const std::string& name, const nlohmann::json& changes);

// An error that names the file and says `part`.
void ExpectError(const absl::StatusOr<ModelSpec>& spec, absl::StatusCode code, const std::string& part);

// Both files say the same, but for what is not in a ModelSpec.
void ExpectSameSpec(const ModelSpec& a, const ModelSpec& b);

// Every tensor of the spec has a name, and no two roles have the same unless they share the tensor.
void ExpectEveryTensorNamed(const ModelSpec& spec, const TensorNaming& naming);

// A GGUF file with these keys and tensors; the tensors are F32 and all zero but where values are given.
struct TensorOf {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values = {};
};
absl::StatusOr<ModelSpec> ReadGgufSpec(const GgufWriter& keys, const std::vector<TensorOf>& tensors);

}  // namespace sluice::testing
