#include "engine/model/generation_config.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

// Collects why values are not used, for one line about one file.
class Unused {
 public:
  Unused(std::string file, std::vector<std::string>* warnings) : file_(std::move(file)), warnings_(*warnings) {}
  ~Unused() {
    if (!reasons_.empty())
      warnings_.push_back(absl::StrCat(file_, ": sampling values that are not used: ", absl::StrJoin(reasons_, "; ")));
  }

  void Add(std::string reason) { reasons_.push_back(std::move(reason)); }

 private:
  const std::string file_;
  std::vector<std::string>& warnings_;
  std::vector<std::string> reasons_;
};

// A number of the file; nothing where there is none. An error, which names the key, for what is no number.
using Find = std::function<absl::StatusOr<std::optional<float>>(const char* key)>;

struct Names {
  const char *temperature, *top_p, *top_k, *min_p, *repetition_penalty;
};

// The same ranges as SamplingParams: what is outside would be refused at every request.
GenerationConfig ReadValues(const Find& find, const Names& names, Unused* unused) {
  const auto read = [&](const char* key, auto accepts, const char* expected) -> std::optional<float> {
    const absl::StatusOr<std::optional<float>> value = find(key);
    if (value.ok() && (!value->has_value() || accepts(**value))) return *value;
    if (value.ok()) {
      unused->Add(absl::StrCat(Quote(key), " is ", **value, ", expected ", expected));
    } else {
      unused->Add(std::string(value.status().message()));
    }
    return std::nullopt;
  };
  GenerationConfig config;
  config.temperature = read(
      names.temperature, [](float v) { return v >= 0 && v <= 100; }, "0 to 100");
  config.top_p = read(
      names.top_p, [](float v) { return v > 0 && v <= 1; }, "more than 0 and at most 1");
  config.min_p = read(
      names.min_p, [](float v) { return v >= 0 && v <= 1; }, "0 to 1");
  config.repetition_penalty = read(
      names.repetition_penalty, [](float v) { return v >= 1e-6f && v <= 100; }, "1e-6 to 100");
  // -1 is another word for 0, no limit.
  const auto is_count = [](float v) { return v >= -1 && v <= float{1 << 30} && v == std::floor(v); };
  if (const std::optional<float> top_k = read(names.top_k, is_count, "a whole number from -1")) {
    config.top_k = std::max(0, int32_t(*top_k));
  }
  return config;
}

// What else decides how transformers generates, with the value that changes nothing.
struct OtherKey {
  const char* key;
  float neutral;
};
constexpr OtherKey kOtherKeys[] = {
    {"num_beams", 1},      {"num_beam_groups", 1}, {"penalty_alpha", 0},        {"typical_p", 1},
    {"epsilon_cutoff", 0}, {"eta_cutoff", 0},      {"no_repeat_ngram_size", 0}, {"encoder_repetition_penalty", 1},
    {"guidance_scale", 1}, {"top_h", 0},           {"diversity_penalty", 0},
};
constexpr const char* kOtherLists[] = {
    "bad_words_ids", "force_words_ids",     "suppress_tokens",     "begin_suppress_tokens",
    "sequence_bias", "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"};

}  // namespace

absl::StatusOr<GenerationConfig> ReadGenerationConfig(const ConfigJson& config, std::vector<std::string>* warnings) {
  Unused unused(config.name(), warnings);
  const auto without_file = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StripPrefix(status.message(), absl::StrCat(config.name(), ": ")));
  };
  const Find find = [&](const char* key) -> absl::StatusOr<std::optional<float>> {
    absl::StatusOr<std::optional<float>> value = config.FindFloat(key);
    if (!value.ok()) return without_file(value.status());
    return value;
  };
  GenerationConfig result = ReadValues(find, {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}, &unused);
  const absl::StatusOr<std::optional<bool>> do_sample = config.FindBool("do_sample");
  if (!do_sample.ok()) unused.Add(std::string(without_file(do_sample.status()).message()));
  if (do_sample.ok() && *do_sample == false) {
    std::vector<std::string> given;
    for (const auto& [key, is_given] : {std::pair("temperature", result.temperature.value_or(1) != 1),
                                        std::pair("top_p", result.top_p.value_or(1) != 1),
                                        std::pair("top_k", result.top_k.value_or(50) != 50 && result.top_k != 0),
                                        std::pair("min_p", result.min_p.value_or(0) != 0)}) {
      if (is_given) given.push_back(key);
    }
    if (!given.empty()) unused.Add(absl::StrCat(QuoteList(given), ", for 'do_sample' is false: the default is greedy"));
    result.temperature = 0;
    result.top_p = result.min_p = std::nullopt;
    result.top_k = std::nullopt;
  }
  for (const OtherKey& other : kOtherKeys) {
    const absl::StatusOr<std::optional<float>> value = find(other.key);
    if (!value.ok() || (value->has_value() && **value != other.neutral))
      unused.Add(absl::StrCat(Quote(other.key), ", which is not supported"));
  }
  for (const char* key : kOtherLists) {
    if (config.Has(key) && !config.IsNull(key)) unused.Add(absl::StrCat(Quote(key), ", which is not supported"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> eos, config.FindInts("eos_token_id", 0, INT32_MAX));
  if (eos.has_value()) result.eos_token_ids.assign(eos->begin(), eos->end());
  return result;
}

GenerationConfig ReadGenerationConfig(const Gguf& gguf, std::vector<std::string>* warnings) {
  Unused unused(gguf.name(), warnings);
  // Writers differ in the types that they give numbers.
  const Find find = [&](const char* key) -> absl::StatusOr<std::optional<float>> {
    const absl::StatusOr<std::optional<float>> value = gguf.FindFloat(key);
    if (value.ok()) return value;
    const absl::StatusOr<std::optional<int64_t>> whole = gguf.FindInt(key, INT64_MIN, INT64_MAX);
    if (whole.ok() && whole->has_value()) return std::optional<float>(float(**whole));
    return absl::InvalidArgumentError(absl::StrCat(Quote(key), " is no number"));
  };
  return ReadValues(find,
                    {"general.sampling.temp", "general.sampling.top_p", "general.sampling.top_k",
                     "general.sampling.min_p", "general.sampling.penalty_repeat"},
                    &unused);
}

}  // namespace sluice
