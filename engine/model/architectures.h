// What each architecture file gives to its row in registry.cc.
#pragma once

#include "absl/status/statusor.h"
#include "engine/io/gguf.h"
#include "engine/model/config_json.h"
#include "engine/model/registry.h"
#include "engine/model/spec.h"

namespace sluice {

// tensor_names.cc: the names that most architectures share.
TensorNaming GgufTensorNames();
TensorNaming HuggingFaceTensorNames();

// llama.cc
absl::StatusOr<ModelSpec> LlamaFromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> LlamaFromConfig(const ConfigJson& config);

// deepseek_v3.cc
absl::StatusOr<ModelSpec> DeepseekV3FromConfig(const ConfigJson& config);
TensorNaming DeepseekV3TensorNames();

}  // namespace sluice
