#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

using std::numbers::pi;

double ScaleLlama3(double theta, const Llama3Rope& rope) {
  const double wavelength = 2 * pi / theta;
  const double original = rope.original_max_position;
  // The branch is chosen before anything is divided: low == high (Llama 4) would divide by zero below.
  if (wavelength < original / rope.high_freq_factor) return theta;
  if (wavelength > original / rope.low_freq_factor) return theta / rope.factor;
  const double smooth =
      (original / wavelength - rope.low_freq_factor) / (double{rope.high_freq_factor} - rope.low_freq_factor);
  return theta * ((1 - smooth) / rope.factor + smooth);
}

float YarnAttentionFactor(const YarnRope& yarn) {
  if (yarn.attention_factor.has_value()) return *yarn.attention_factor;
  if (yarn.mscale != 0 && yarn.mscale_all_dim != 0) {
    return float(YarnMagnitude(yarn.factor, yarn.mscale) / YarnMagnitude(yarn.factor, yarn.mscale_all_dim));
  }
  return float(YarnMagnitude(yarn.factor, 1));
}

absl::StatusOr<float> GetPositive(const ConfigJson& config, absl::string_view key) {
  SLUICE_ASSIGN_OR_RETURN(const float value, config.GetFloat(key));
  if (value > 0) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(config.name(), ": RoPE key '", key, "' is ", value, ", expected a number above 0"));
}

absl::StatusOr<Llama3Rope> ReadLlama3(const ConfigJson& rope, int32_t original) {
  Llama3Rope llama3{.original_max_position = original};
  SLUICE_ASSIGN_OR_RETURN(llama3.factor, GetPositive(rope, "factor"));
  SLUICE_ASSIGN_OR_RETURN(llama3.low_freq_factor, GetPositive(rope, "low_freq_factor"));
  SLUICE_ASSIGN_OR_RETURN(llama3.high_freq_factor, GetPositive(rope, "high_freq_factor"));
  return llama3;
}

absl::StatusOr<YarnRope> ReadYarn(const ConfigJson& rope, int32_t original) {
  YarnRope yarn{.original_max_position = original};
  SLUICE_ASSIGN_OR_RETURN(yarn.factor, GetPositive(rope, "factor"));
  SLUICE_ASSIGN_OR_RETURN(yarn.beta_fast, rope.FloatOr("beta_fast", 32));
  SLUICE_ASSIGN_OR_RETURN(yarn.beta_slow, rope.FloatOr("beta_slow", 1));
  SLUICE_ASSIGN_OR_RETURN(yarn.truncate, rope.BoolOr("truncate", true));
  SLUICE_ASSIGN_OR_RETURN(yarn.attention_factor, rope.FindFloat("attention_factor"));
  SLUICE_ASSIGN_OR_RETURN(yarn.mscale, rope.FloatOr("mscale", 0));
  SLUICE_ASSIGN_OR_RETURN(yarn.mscale_all_dim, rope.FloatOr("mscale_all_dim", 0));
  if (!(yarn.beta_fast > 0 && yarn.beta_slow > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(rope.name(), ": yarn has beta_fast ", yarn.beta_fast,
                                                   " and beta_slow ", yarn.beta_slow, ", expected numbers above 0"));
  }
  return yarn;
}

absl::StatusOr<RopeScaling> ReadScaling(const ConfigJson& config, const ConfigJson& rope, absl::string_view key,
                                        int32_t max_position) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<std::string> type, rope.FindString("rope_type"));
  if (!type.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(type, rope.FindString("type"));
  }
  if (!type.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key '", key, "' has no 'rope_type'"));
  }
  constexpr absl::string_view kOriginal = "original_max_position_embeddings";
  SLUICE_ASSIGN_OR_RETURN(int64_t original, rope.IntOr(kOriginal, 1, INT32_MAX, max_position));
  SLUICE_ASSIGN_OR_RETURN(original, config.IntOr(kOriginal, 1, INT32_MAX, original));
  if (*type == "default") return RopeScaling{};
  if (*type == "linear") {
    SLUICE_ASSIGN_OR_RETURN(const float factor, GetPositive(rope, "factor"));
    return LinearRope{factor};
  }
  if (*type == "llama3") return ReadLlama3(rope, int32_t(original));
  if (*type == "yarn") return ReadYarn(rope, int32_t(original));
  if (*type == "dynamic" || *type == "longrope" || *type == "su") {
    return absl::UnimplementedError(
        absl::StrCat(config.name(), ": key '", key, "' asks for rope_type '", *type, "', which is not supported yet"));
  }
  return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key '", key, "' has the unknown rope_type '", *type,
                                                 "'; known are default, linear, llama3 and yarn"));
}

}  // namespace

double YarnMagnitude(double s, double k) { return s <= 1 ? 1 : 0.1 * k * std::log(s) + 1; }

YarnRamp FindYarnRamp(double base, int32_t num_rotary, const YarnRope& yarn) {
  // The pair that turns r times over the original context.
  const auto pair = [&](double r) {
    return num_rotary * std::log(yarn.original_max_position / (2 * pi * r)) / (2 * std::log(base));
  };
  YarnRamp ramp{pair(yarn.beta_fast), pair(yarn.beta_slow)};
  if (yarn.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  return ramp;
}

RopeTable MakeRopeTable(double base, int32_t num_rotary, const RopeScaling& scaling) {
  SLUICE_CHECK(base > 0 && num_rotary >= 2 && num_rotary % 2 == 0);
  RopeTable table;
  double low = 0, high = 0;
  const YarnRope* yarn = std::get_if<YarnRope>(&scaling);
  if (yarn != nullptr) {
    const YarnRamp ramp = FindYarnRamp(base, num_rotary, *yarn);
    low = std::max(ramp.low, 0.0);
    high = std::min(ramp.high, double(num_rotary - 1));
    if (low == high) high += 0.001;
    table.attention_factor = YarnAttentionFactor(*yarn);
  }
  for (int32_t i = 0; i < num_rotary / 2; ++i) {
    double theta = std::pow(base, -2.0 * i / num_rotary);
    if (const auto* linear = std::get_if<LinearRope>(&scaling)) theta /= linear->factor;
    if (const auto* llama3 = std::get_if<Llama3Rope>(&scaling)) theta = ScaleLlama3(theta, *llama3);
    if (yarn != nullptr) {
      const double divided = std::clamp((i - low) / (high - low), 0.0, 1.0);
      theta = theta * (1 - divided) + theta / yarn->factor * divided;
    }
    table.inv_freq.push_back(float(theta));
  }
  return table;
}

absl::StatusOr<RopeConfig> ReadRopeConfig(const ConfigJson& config, float default_theta, int32_t max_position) {
  RopeConfig rope;
  SLUICE_ASSIGN_OR_RETURN(rope.theta, config.FloatOr("rope_theta", default_theta));
  absl::string_view key = "rope_parameters";
  SLUICE_ASSIGN_OR_RETURN(std::optional<ConfigJson> parameters, config.FindObject(key));
  if (parameters.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(rope.theta, parameters->FloatOr("rope_theta", rope.theta));
  } else {
    key = "rope_scaling";
    SLUICE_ASSIGN_OR_RETURN(parameters, config.FindObject(key));
  }
  if (!(rope.theta > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.name(), ": key 'rope_theta' is ", rope.theta, ", expected a number above 1"));
  }
  if (parameters.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(rope.scaling, ReadScaling(config, *parameters, key, max_position));
  }
  return rope;
}

}  // namespace sluice
