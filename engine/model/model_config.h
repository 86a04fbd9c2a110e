// A config.json as a whole: which architecture, its spec, how the weights are quantised, and what is odd about it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config_json.h"
#include "engine/model/quantization_config.h"
#include "engine/model/registry.h"
#include "engine/model/spec.h"

namespace sluice {

struct ModelConfig {
  const Architecture* architecture = nullptr;  // never null
  ModelSpec spec;                              // validated
  QuantizationConfig quantization;
  std::vector<std::string> warnings;  // a line each, with the file's name: keys that nobody knows, what is left out
};

// The errors of FindArchitecture, ReadModelSpec and ReadQuantizationConfig.
absl::StatusOr<ModelConfig> ReadModelConfig(const ConfigJson& config);

}  // namespace sluice
