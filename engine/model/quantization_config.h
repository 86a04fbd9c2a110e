// How the weights of a Hugging Face folder are quantised, as `quantization_config` of its config.json says. Which
// tensors are is seen from the tensors themselves (tensor_form.h).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/config_json.h"

namespace sluice {

enum class Quantization : uint8_t { kNone, kFp8Blocks, kMxfp4 };

struct QuantizationConfig {
  Quantization kind = Quantization::kNone;
  // kFp8Blocks: the matrix [out, in] is cut into blocks of so many rows and columns with a factor each; the last ones
  // in a direction may be smaller.
  int32_t block_rows = 128;
  int32_t block_cols = 128;
};

// UNIMPLEMENTED for a method that is not in the list; INVALID_ARGUMENT for odd values. Both name file and key.
absl::StatusOr<QuantizationConfig> ReadQuantizationConfig(const ConfigJson& config);

}  // namespace sluice
