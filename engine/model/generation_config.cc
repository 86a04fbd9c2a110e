#include "engine/model/generation_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

// The same ranges as SamplingParams; what is outside would be refused at every request, so it is refused here.
absl::Status Check(const std::string& file, const GenerationConfig& config) {
  const auto check = [&](absl::string_view key, const std::optional<float>& value, float min, bool min_ok, float max) {
    if (!value.has_value()) return absl::OkStatus();
    if ((min_ok ? *value >= min : *value > min) && *value <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(file, ": sampling default '", key, "' is ", *value, ", expected ",
                                                   min_ok ? "at least " : "above ", min, " and at most ", max));
  };
  SLUICE_RETURN_IF_ERROR(check("temperature", config.temperature, 0, true, 100));
  SLUICE_RETURN_IF_ERROR(check("top_p", config.top_p, 0, false, 1));
  SLUICE_RETURN_IF_ERROR(check("min_p", config.min_p, 0, true, 1));
  return check("repetition_penalty", config.repetition_penalty, 1e-6f, true, 100);
}

std::optional<int32_t> ToInt32(const std::optional<int64_t>& value) {
  if (!value.has_value()) return std::nullopt;
  return int32_t(*value);
}

}  // namespace

absl::StatusOr<GenerationConfig> ReadGenerationConfig(const ConfigJson& config) {
  GenerationConfig result;
  SLUICE_ASSIGN_OR_RETURN(const bool do_sample, config.BoolOr("do_sample", false));
  if (do_sample) {
    SLUICE_ASSIGN_OR_RETURN(result.temperature, config.FindFloat("temperature"));
    SLUICE_ASSIGN_OR_RETURN(result.top_p, config.FindFloat("top_p"));
    SLUICE_ASSIGN_OR_RETURN(result.min_p, config.FindFloat("min_p"));
    SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, config.FindInt("top_k", 0, INT32_MAX));
    result.top_k = ToInt32(top_k);
  }
  SLUICE_ASSIGN_OR_RETURN(result.repetition_penalty, config.FindFloat("repetition_penalty"));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> eos, config.FindInts("eos_token_id", 0, INT32_MAX));
  if (eos.has_value()) result.eos_token_ids.assign(eos->begin(), eos->end());
  SLUICE_RETURN_IF_ERROR(Check(config.name(), result));
  return result;
}

absl::StatusOr<GenerationConfig> ReadGenerationConfig(const Gguf& gguf) {
  GenerationConfig result;
  SLUICE_ASSIGN_OR_RETURN(result.temperature, gguf.FindFloat("general.sampling.temp"));
  SLUICE_ASSIGN_OR_RETURN(result.top_p, gguf.FindFloat("general.sampling.top_p"));
  SLUICE_ASSIGN_OR_RETURN(result.min_p, gguf.FindFloat("general.sampling.min_p"));
  SLUICE_ASSIGN_OR_RETURN(result.repetition_penalty, gguf.FindFloat("general.sampling.penalty_repeat"));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, gguf.FindInt("general.sampling.top_k", 0, INT32_MAX));
  result.top_k = ToInt32(top_k);
  SLUICE_RETURN_IF_ERROR(Check(gguf.name(), result));
  return result;
}

}  // namespace sluice
