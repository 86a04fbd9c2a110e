// What a model's publisher recommends for sampling.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice {

// Fields that the file leaves out are not set.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

}  // namespace sluice
