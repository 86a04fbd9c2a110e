// How the weights of a Hugging Face folder are quantised, as `quantization_config` of its config.json says. Which
// tensors are is seen from the tensors themselves (tensor_form.h).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/config_json.h"
#include "engine/model/stored_matrix.h"

namespace sluice {

enum class Quantization : uint8_t { kNone, kFp8Blocks, kMxfp4 };

struct QuantizationConfig {
  Quantization kind = Quantization::kNone;
  Fp8BlockSize fp8_block;  // kFp8Blocks
};

// UNIMPLEMENTED for a method that is not in the list; INVALID_ARGUMENT for odd values. Both name file and key.
absl::StatusOr<QuantizationConfig> ReadQuantizationConfig(const ConfigJson& config);

}  // namespace sluice
