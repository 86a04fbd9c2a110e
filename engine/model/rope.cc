#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/quote.h"
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
      absl::StrCat(config.name(), ": RoPE key ", Quote(key), " is ", value, ", expected a number above 0"));
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
  SLUICE_ASSIGN_OR_RETURN(yarn.beta_fast, rope.FloatOr("beta_fast", 0));
  SLUICE_ASSIGN_OR_RETURN(yarn.beta_slow, rope.FloatOr("beta_slow", 0));
  // The reference takes 0 for "not given".
  if (yarn.beta_fast == 0) yarn.beta_fast = 32;
  if (yarn.beta_slow == 0) yarn.beta_slow = 1;
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

absl::StatusOr<LongRope> ReadLongRope(const ConfigJson& rope, int32_t original, int32_t max_position) {
  LongRope longrope{.original_max_position = original};
  for (const auto& [key, list] :
       {std::pair("short_factor", &longrope.short_factor), std::pair("long_factor", &longrope.long_factor)}) {
    SLUICE_ASSIGN_OR_RETURN(std::optional<std::vector<float>> factors, rope.FindFloats(key));
    if (!factors.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(rope.name(), ": longrope has no list ", Quote(key)));
    }
    for (float factor : *factors) {
      if (factor > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(rope.name(), ": RoPE key ", Quote(key), " holds ", factor, ", expected numbers above 0"));
    }
    *list = *std::move(factors);
  }
  SLUICE_ASSIGN_OR_RETURN(longrope.factor, rope.FindFloat("factor"));
  const float factor = longrope.factor.value_or(float(max_position) / float(original));
  SLUICE_ASSIGN_OR_RETURN(longrope.attention_factor,
                          rope.FloatOr("attention_factor", float(LongRopeMagnitude(factor, original))));
  return longrope;
}

absl::StatusOr<RopeScaling> ReadScaling(const ConfigJson& config, const ConfigJson& rope,
                                        const RopeDefaults& defaults) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<std::string> type, rope.FindString("rope_type"));
  if (!type.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(type, rope.FindString("type"));
  }
  // Where a file has both, they are two spellings of one thing.
  rope.Ignore("type");
  if (!type.has_value() && rope.Has("factor")) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": RoPE has a 'factor' but no 'rope_type'"));
  }
  constexpr absl::string_view kOriginal = "original_max_position_embeddings";
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> said, rope.FindInt(kOriginal, 1, INT32_MAX));
  int64_t original = said.value_or(defaults.max_position);
  SLUICE_ASSIGN_OR_RETURN(original,
                          config.IntOr(kOriginal, 1, INT32_MAX, defaults.original_max_position.value_or(original)));
  if (!type.has_value() || *type == "default") return RopeScaling{};
  if (*type == "linear") {
    SLUICE_ASSIGN_OR_RETURN(const float factor, GetPositive(rope, "factor"));
    LinearRope linear{factor};
    if (said.has_value() || config.Has(kOriginal)) linear.original_max_position = int32_t(original);
    return linear;
  }
  if (*type == "dynamic") {
    SLUICE_ASSIGN_OR_RETURN(const float factor, GetPositive(rope, "factor"));
    return DynamicRope{factor, defaults.max_position};
  }
  if (*type == "llama3") return ReadLlama3(rope, int32_t(original));
  // Two earlier names of longrope: Phi-3 files called it so before it had one.
  if (*type == "longrope" || *type == "su" || (*type == "yarn" && rope.Has("short_factor"))) {
    return ReadLongRope(rope, int32_t(original), defaults.max_position);
  }
  if (*type == "yarn") return ReadYarn(rope, int32_t(original));
  return absl::InvalidArgumentError(absl::StrCat(config.name(), ": unknown rope_type ", Quote(*type),
                                                 "; known are default, linear, dynamic, llama3, yarn and longrope"));
}

absl::Status BadRope(const std::string& file, absl::string_view what, int64_t found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what, " is ", found, ", expected ", expected));
}

}  // namespace

RopeContext ContextOf(const RopeScaling& scaling, int32_t max_position) {
  const auto times = [](int32_t tokens, double factor) {
    return int32_t(std::clamp(std::floor(tokens * factor), 1.0, double{kMaxPosition}));
  };
  RopeContext context{max_position, max_position};
  if (const auto* linear = std::get_if<LinearRope>(&scaling)) {
    context.longest = times(linear->original_max_position.value_or(max_position), linear->factor);
  } else if (const auto* dynamic = std::get_if<DynamicRope>(&scaling)) {
    context.longest = times(dynamic->max_position, dynamic->factor);
  } else if (const auto* longrope = std::get_if<LongRope>(&scaling)) {
    context.longest = times(longrope->original_max_position, longrope->factor.value_or(1));
  } else if (const auto* yarn = std::get_if<YarnRope>(&scaling)) {
    context.usual = std::max(max_position, times(yarn->original_max_position, yarn->factor));
  }
  context.longest = std::max(context.longest, context.usual);
  return context;
}

float ScalingFactorOf(const RopeScaling& scaling) {
  if (const auto* linear = std::get_if<LinearRope>(&scaling)) return linear->factor;
  if (const auto* dynamic = std::get_if<DynamicRope>(&scaling)) return dynamic->factor;
  if (const auto* llama3 = std::get_if<Llama3Rope>(&scaling)) return llama3->factor;
  if (const auto* yarn = std::get_if<YarnRope>(&scaling)) return yarn->factor;
  return 1;
}

double LongRopeMagnitude(double factor, int32_t original_max_position) {
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(double(original_max_position)));
}

double YarnMagnitude(double s, double k) { return s <= 1 ? 1 : 0.1 * k * std::log(s) + 1; }

YarnRamp FindYarnRamp(double base, int32_t num_rotary, const YarnRope& yarn) {
  // The pair that rotates r times over the original context.
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
  LongRopeRule long_rule;
  const LongRope* longrope = std::get_if<LongRope>(&scaling);
  if (longrope != nullptr) {
    SLUICE_CHECK(int32_t(longrope->short_factor.size()) == num_rotary / 2);
    SLUICE_CHECK(int32_t(longrope->long_factor.size()) == num_rotary / 2);
    long_rule.original_max_position = longrope->original_max_position;
    table.attention_factor = longrope->attention_factor;
  }
  for (int32_t i = 0; i < num_rotary / 2; ++i) {
    double theta = std::pow(base, -2.0 * i / num_rotary);
    if (longrope != nullptr) {
      long_rule.long_inv_freq.push_back(float(theta / longrope->long_factor[i]));
      theta /= longrope->short_factor[i];
    }
    if (const auto* linear = std::get_if<LinearRope>(&scaling)) theta /= linear->factor;
    if (const auto* llama3 = std::get_if<Llama3Rope>(&scaling)) theta = ScaleLlama3(theta, *llama3);
    if (yarn != nullptr) {
      const double divided = std::clamp((i - low) / (high - low), 0.0, 1.0);
      theta = theta * (1 - divided) + theta / yarn->factor * divided;
    }
    table.inv_freq.push_back(float(theta));
  }
  if (longrope != nullptr) table.length_rule = std::move(long_rule);
  if (const auto* dynamic = std::get_if<DynamicRope>(&scaling)) {
    SLUICE_CHECK(num_rotary > 2);
    table.length_rule = DynamicNtkRule{float(base), dynamic->factor, dynamic->max_position};
  }
  return table;
}

absl::StatusOr<RopeConfig> ReadRopeConfig(const ConfigJson& config, const ConfigJson& rope,
                                          const RopeDefaults& defaults) {
  RopeConfig result;
  SLUICE_ASSIGN_OR_RETURN(result.theta, config.FloatOr("rope_theta", defaults.theta));
  SLUICE_ASSIGN_OR_RETURN(result.theta, rope.FloatOr("rope_theta", result.theta));
  if (!(result.theta > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.name(), ": key 'rope_theta' is ", result.theta, ", expected a number above 1"));
  }
  SLUICE_ASSIGN_OR_RETURN(result.partial_rotary_factor, config.FloatOr("partial_rotary_factor", 1));
  SLUICE_ASSIGN_OR_RETURN(result.partial_rotary_factor,
                          rope.FloatOr("partial_rotary_factor", result.partial_rotary_factor));
  if (!(result.partial_rotary_factor > 0 && result.partial_rotary_factor <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(config.name(), ": key 'partial_rotary_factor' is ",
                                                   result.partial_rotary_factor,
                                                   ", expected a number above 0 and at most 1"));
  }
  SLUICE_ASSIGN_OR_RETURN(result.scaling, ReadScaling(config, rope, defaults));
  return result;
}

absl::StatusOr<RopeConfig> ReadRopeConfig(const ConfigJson& config, const RopeDefaults& defaults) {
  // An old-style object, if there is one, is what its author meant; an empty one is none.
  SLUICE_ASSIGN_OR_RETURN(std::optional<ConfigJson> rope, config.FindObject("rope_scaling"));
  if (!rope.has_value() || rope->empty()) {
    SLUICE_ASSIGN_OR_RETURN(rope, config.FindObject("rope_parameters"));
  }
  if (!rope.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(rope, ConfigJson::Parse("{}", config.name()));
  }
  return ReadRopeConfig(config, *rope, defaults);
}

absl::StatusOr<RopeSpec> AddRope(const std::string& file, const RopeConfig& rope, int32_t head_dim, RopeLayout layout,
                                 ModelSpec* spec) {
  // Factors like 0.4 are not exact; the small addition keeps 0.4 * 80 from becoming 31.
  const double exact = double(head_dim) * double{rope.partial_rotary_factor};
  const int32_t num_rotary = int32_t(std::min(exact + 1e-4, double{1 << 20}));
  if (num_rotary < 2 || num_rotary % 2 != 0 || num_rotary > (1 << 16)) {
    return BadRope(file, "the number of rotating dimensions of a head", num_rotary, "an even number from 2 to 65536");
  }
  if (const auto* longrope = std::get_if<LongRope>(&rope.scaling)) {
    for (const std::vector<float>* list : {&longrope->short_factor, &longrope->long_factor}) {
      if (list->size() == size_t(num_rotary) / 2) continue;
      return BadRope(file, "the length of longrope's short_factor or long_factor", int64_t(list->size()),
                     absl::StrCat(num_rotary / 2, ", one for each pair of dimensions"));
    }
  }
  if (std::holds_alternative<DynamicRope>(rope.scaling) && num_rotary == 2) {
    return BadRope(file, "the number of rotating dimensions of a head", 2, "more for dynamic RoPE");
  }
  const RopeSpec result{.table = int32_t(spec->rope_tables.size()), .layout = layout, .num_rotary = num_rotary};
  spec->rope_tables.push_back(MakeRopeTable(rope.theta, num_rotary, rope.scaling));
  const RopeContext context = ContextOf(rope.scaling, spec->max_position);
  spec->max_position = context.usual;
  spec->longest_position = std::max(spec->longest_position, context.longest);
  spec->rope_scaling_factor = std::max(spec->rope_scaling_factor, ScalingFactorOf(rope.scaling));
  return result;
}

}  // namespace sluice
