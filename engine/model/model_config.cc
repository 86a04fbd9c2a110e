#include "engine/model/model_config.h"

#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/model/unknown_keys.h"

namespace sluice {

absl::StatusOr<ModelConfig> ReadModelConfig(const ConfigJson& config) {
  ModelConfig model;
  SLUICE_ASSIGN_OR_RETURN(model.architecture, FindArchitecture(config));
  SLUICE_ASSIGN_OR_RETURN(model.spec, ReadModelSpec(config));
  SLUICE_ASSIGN_OR_RETURN(model.quantization, ReadQuantizationConfig(config));
  model.warnings = config.Warnings();
  if (const std::vector<std::string> unknown = UnknownKeys(config); !unknown.empty()) {
    model.warnings.push_back(absl::StrCat(
        config.name(), ": keys that are not known and may change what the model computes: ", QuoteList(unknown)));
  }
  return model;
}

}  // namespace sluice
