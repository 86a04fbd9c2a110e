// RoPE frequency tables: the base formula and the ways a model stretches it over a longer context.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/status/statusor.h"
#include "engine/model/config_json.h"
#include "engine/model/spec.h"

namespace sluice {

// theta_i / factor (position interpolation; Chen et al. 2023, arXiv:2306.15595).
struct LinearRope {
  float factor = 1;
};

// Long wavelengths are divided by `factor`, short ones kept, those between blended (Llama 3.1).
struct Llama3Rope {
  float factor = 1;
  float low_freq_factor = 1;
  float high_freq_factor = 4;
  int32_t original_max_position = 8192;
};

// YaRN (Peng et al. 2023, arXiv:2309.00071): a ramp over the pairs between kept and divided frequencies, and a factor
// on cos and sin.
struct YarnRope {
  float factor = 1;
  int32_t original_max_position = 4096;
  float beta_fast = 32, beta_slow = 1;
  bool truncate = true;  // the ramp's ends are whole pairs
  std::optional<float> attention_factor = {};
  float mscale = 0, mscale_all_dim = 0;  // DeepSeek; 0: not given
};

using RopeScaling = std::variant<std::monostate, LinearRope, Llama3Rope, YarnRope>;

// theta_i = base^(-2i / num_rotary), scaled. REQUIRES: base > 0, num_rotary even and >= 2.
RopeTable MakeRopeTable(double base, int32_t num_rotary, const RopeScaling& scaling);

// 1 for s <= 1, else 0.1 k ln(s) + 1: the magnitude correction of YaRN.
double YarnMagnitude(double s, double k);

// First and last pair of the ramp, before clamping to [0, num_rotary - 1] when `truncate` is off.
struct YarnRamp {
  double low = 0, high = 0;
};
YarnRamp FindYarnRamp(double base, int32_t num_rotary, const YarnRope& yarn);

struct RopeConfig {
  float theta = 1e4f;
  RopeScaling scaling;
};

// Reads RoPE from a config.json, in both of its spellings: `rope_theta` with `rope_scaling`, or `rope_parameters` as
// transformers 5 writes it. UNIMPLEMENTED for a scaling whose table depends on the request's length, INVALID_ARGUMENT
// for an unknown one; both name the key.
absl::StatusOr<RopeConfig> ReadRopeConfig(const ConfigJson& config, float default_theta, int32_t max_position);

}  // namespace sluice
