// Where a model is to run, and in what precision, by the names of the server's flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

struct DeviceOptions {
  std::string name = "auto";                    // auto, cpu, cuda
  int32_t ordinal = 0;                          // among the GPUs that the process sees
  std::string activations = "auto";             // auto, int16, int8, f32, bf16
  std::string kv_dtype = "auto";                // auto, f32, f16, bf16, fp8_e4m3
  std::optional<int32_t> mla_expand_from = {};  // NumericsOptions; none: the device's
  int32_t gemm_library_from = INT32_MAX;        // NumericsOptions
};

}  // namespace sluice
