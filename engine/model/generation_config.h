// What a model's publisher recommends for sampling, and the tokens that end a generation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/io/gguf.h"
#include "engine/model/config_json.h"

namespace sluice {

// Fields that the file leaves out are not set.
struct GenerationConfig {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::vector<int32_t> eos_token_ids;
};

// generation_config.json: eos_token_id is a number or a list. With `do_sample` false (or missing) temperature, top_k
// and top_p are not in use and stay unset. INVALID_ARGUMENT names a key whose value is out of range.
absl::StatusOr<GenerationConfig> ReadGenerationConfig(const ConfigJson& config);

// GGUF's general.sampling.* keys.
absl::StatusOr<GenerationConfig> ReadGenerationConfig(const Gguf& gguf);

}  // namespace sluice
