// RoPE frequency tables: the base formula and the ways a model extends it over a longer context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config_json.h"
#include "engine/model/spec.h"

namespace sluice {

// theta_i / factor (position interpolation; Chen et al. 2023, arXiv:2306.15595).
struct LinearRope {
  float factor = 1;
  std::optional<int32_t> original_max_position = {};  // where the file says it, which few do
};

// The base grows with the length of the sequence (DynamicNtkRule in base/rope_table.h).
struct DynamicRope {
  float factor = 1;
  int32_t max_position = 0;
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

// A divisor for each frequency, of which there are two lists: one for sequences up to `original_max_position` tokens
// and one for longer ones (Ding et al. 2024, arXiv:2402.13753).
struct LongRope {
  std::vector<float> short_factor = {}, long_factor = {};  // [num_rotary / 2]
  int32_t original_max_position = 4096;
  float attention_factor = 1;
  std::optional<float> factor = {};  // where the file says it; most leave it to max_position / original_max_position
};

using RopeScaling = std::variant<std::monostate, LinearRope, DynamicRope, Llama3Rope, YarnRope, LongRope>;

// How many tokens a sequence may have where the file says `max_position` (max_position_embeddings; GGUF's
// context_length).
struct RopeContext {
  int32_t usual = 0;    // what is served unless --max-model-len says otherwise
  int32_t longest = 0;  // what --max-model-len may say
};

// Files disagree on whether max_position counts before or after the stretching, and so do those who read them:
//
//   kind      transformers  vLLM               llama.cpp     here: usual                   longest
//   none      max           max                max           max                           max
//   linear    max           max * factor       max           max                           max * factor
//   dynamic   max           max * factor       -             max                           max * factor
//   llama3    max           max                max           max                           max
//   longrope  max           max                max           max                           max(max, original * factor)
//   yarn      max           original * factor  max           max(max, original * factor)   the same
//
// Yarn's keys say what they mean, and a file whose author added them to a shorter max_position (as Qwen's model cards
// tell people to) asks for the product. A linear factor extends as far only if asked to, for most files count it in
// max_position already; with an original_max_position it goes by that. Longrope has a factor only where the file gives
// one. Gemma 3, whose max_position always counts its linear factor, goes no further (as in vLLM).
RopeContext ContextOf(const RopeScaling& scaling, int32_t max_position);

// By how much the longest wavelengths are extended: the factor; 1 for longrope, which has one for each.
float ScalingFactorOf(const RopeScaling& scaling);

// theta_i = base^(-2i / num_rotary), scaled. REQUIRES: base > 0, num_rotary even and >= 2; more than 2 for DynamicRope;
// lists of num_rotary / 2 for LongRope.
RopeTable MakeRopeTable(double base, int32_t num_rotary, const RopeScaling& scaling);

// 1 for s <= 1, else 0.1 k ln(s) + 1: the magnitude correction of YaRN.
double YarnMagnitude(double s, double k);

// First and last pair of the ramp, before clamping to [0, num_rotary - 1] when `truncate` is off.
struct YarnRamp {
  double low = 0, high = 0;
};
YarnRamp FindYarnRamp(double base, int32_t num_rotary, const YarnRope& yarn);

// sqrt(1 + ln(factor) / ln(original_max_position)), 1 for factors up to 1: what LongRope multiplies cos and sin by
// unless told otherwise.
double LongRopeMagnitude(double factor, int32_t original_max_position);

struct RopeConfig {
  float theta = 1e4f;
  float partial_rotary_factor = 1;  // of the head, the part that rotates
  RopeScaling scaling;
};

// What a config.json leaves to its family and to its other keys.
struct RopeDefaults {
  float theta = 1e4f;
  int32_t max_position = 0;  // max_position_embeddings
  // A context before stretching that the family knows: like a top-level `original_max_position_embeddings`, which wins
  // over it, it wins over the one beside the scaling. None: max_position, where no key says otherwise.
  std::optional<int32_t> original_max_position = {};
};

// Reads RoPE from a config.json, in both of its spellings: `rope_theta` with `rope_scaling`, or `rope_parameters` as
// transformers 5 writes it. INVALID_ARGUMENT for an unknown scaling or a missing or odd number, naming the key.
absl::StatusOr<RopeConfig> ReadRopeConfig(const ConfigJson& config, const RopeDefaults& defaults);
// The same from one of several objects in `rope_parameters`, where each kind of layer has its own.
absl::StatusOr<RopeConfig> ReadRopeConfig(const ConfigJson& config, const ConfigJson& rope,
                                          const RopeDefaults& defaults);

// Adds the table for heads of `head_dim` dimensions to the spec, whose max_position is the file's when the first one
// comes, and lets the spec's contexts (ContextOf) and stretch grow with it. `file` stands for the source in errors,
// which say what does not go together: an odd number of dimensions, a list of another length.
absl::StatusOr<RopeSpec> AddRope(const std::string& file, const RopeConfig& rope, int32_t head_dim, RopeLayout layout,
                                 ModelSpec* spec);

}  // namespace sluice
