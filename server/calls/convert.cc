#include "server/calls/convert.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/scheduler/kv_blocks.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

// A float field within [min, max], or (min, max] if `open`.
absl::Status CheckFloat(absl::string_view name, float value, float min, float max, bool open = false) {
  const bool above = open ? value > min : value >= min;
  if (std::isfinite(value) && above && value <= max) return absl::OkStatus();
  return InvalidField(absl::StrCat("options.", name), absl::StrCat("found ", value, ", expected ", open ? "above " : "",
                                                                   min, open ? " up to " : " to ", max));
}

absl::Status CheckFloats(const v1::GenerateOptions& options) {
  constexpr float kMax = 1e6f;
  if (options.has_temperature()) SLUICE_RETURN_IF_ERROR(CheckFloat("temperature", options.temperature(), 0, 2));
  if (options.has_top_p()) SLUICE_RETURN_IF_ERROR(CheckFloat("top_p", options.top_p(), 0, 1, true));
  if (options.has_min_p()) SLUICE_RETURN_IF_ERROR(CheckFloat("min_p", options.min_p(), 0, 1));
  if (options.has_repetition_penalty()) {
    SLUICE_RETURN_IF_ERROR(CheckFloat("repetition_penalty", options.repetition_penalty(), 1 / kMax, kMax));
  }
  if (options.has_presence_penalty()) {
    SLUICE_RETURN_IF_ERROR(CheckFloat("presence_penalty", options.presence_penalty(), -2, 2));
  }
  if (options.has_frequency_penalty()) {
    SLUICE_RETURN_IF_ERROR(CheckFloat("frequency_penalty", options.frequency_penalty(), -2, 2));
  }
  return absl::OkStatus();
}

absl::Status CheckUnimplemented(const v1::GenerateOptions& options) {
  if (options.echo()) return UnimplementedField("options.echo");
  switch (options.constraint_case()) {
    case v1::GenerateOptions::CONSTRAINT_NOT_SET:
      return absl::OkStatus();
    case v1::GenerateOptions::kJsonObject:
      return UnimplementedField("options.json_object");
    case v1::GenerateOptions::kJsonSchema:
      return UnimplementedField("options.json_schema");
    case v1::GenerateOptions::kRegex:
      return UnimplementedField("options.regex");
    case v1::GenerateOptions::kGrammar:
      return UnimplementedField("options.grammar");
    case v1::GenerateOptions::kChoices:
      return UnimplementedField("options.choices");
  }
  return absl::OkStatus();
}

// Below min_tokens neither end nor stop tokens are drawn: something else must be left.
absl::Status CheckMask(const v1::GenerateOptions& options, const EngineOptions& engine) {
  if (options.min_tokens() == 0) return absl::OkStatus();
  absl::flat_hash_set<int32_t> masked(engine.eos_token_ids.begin(), engine.eos_token_ids.end());
  masked.insert(options.stop_token_ids().begin(), options.stop_token_ids().end());
  if (int32_t(masked.size()) < engine.vocab_size) return absl::OkStatus();
  return InvalidField("options.stop_token_ids",
                      absl::StrCat("found ", options.stop_token_ids_size(),
                                   " ids which with min_tokens leave no token to draw, expected fewer"));
}

absl::Status CheckStops(const v1::GenerateOptions& options, const ServedModel& model) {
  if (options.stop_size() > kMaxStops) {
    return InvalidField("options.stop",
                        absl::StrCat("found ", options.stop_size(), " texts, expected at most ", kMaxStops));
  }
  for (int i = 0; i < options.stop_size(); ++i) {
    if (options.stop(i).empty() || options.stop(i).size() > 1024) {
      return InvalidField(absl::StrCat("options.stop[", i, "]"),
                          absl::StrCat("found ", options.stop(i).size(), " bytes, expected 1 to 1024"));
    }
  }
  if (options.stop_size() > 0 && model.host().tokenizer == nullptr) {
    return CallError(absl::StatusCode::kFailedPrecondition, kReasonNoTokenizer,
                     "options.stop: the model has no tokenizer; use stop_token_ids");
  }
  if (options.stop_token_ids_size() > kMaxStopTokenIds) {
    return InvalidField("options.stop_token_ids", absl::StrCat("found ", options.stop_token_ids_size(),
                                                               " ids, expected at most ", kMaxStopTokenIds));
  }
  const EngineOptions& engine = model.host().engine;
  SLUICE_RETURN_IF_ERROR(
      ConvertTokenIds("options.stop_token_ids", options.stop_token_ids(), engine.vocab_size).status());
  return CheckMask(options, engine);
}

absl::Status CheckLogitBias(const v1::GenerateOptions& options, int32_t vocab_size) {
  if (options.logit_bias_size() > kMaxLogitBias) {
    return InvalidField("options.logit_bias", absl::StrCat("found ", options.logit_bias_size(),
                                                           " entries, expected at most ", kMaxLogitBias));
  }
  for (const auto& [token, bias] : options.logit_bias()) {
    const std::string field = absl::StrCat("options.logit_bias[", token, "]");
    if (token >= uint32_t(vocab_size)) {
      return InvalidField(field, absl::StrCat("found token ", token, ", expected one below ", vocab_size),
                          kReasonInvalidToken);
    }
    if (!(bias >= -100 && bias <= 100)) {
      return InvalidField(field, absl::StrCat("found ", bias, ", expected -100 to 100"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogprobs(absl::string_view name, int32_t found, const ServedModel& model) {
  const int32_t limit = model.max_logprobs();
  if (found == -1 && limit == -1) return absl::OkStatus();
  const int32_t max = limit == -1 ? model.host().engine.vocab_size : std::min(limit, model.host().engine.vocab_size);
  if (found >= 0 && found <= max) return absl::OkStatus();
  return InvalidField(absl::StrCat("options.", name), absl::StrCat("found ", found, ", expected 0 to ", max,
                                                                   limit == -1 ? ", or -1" : " (--max-logprobs)"));
}

float Temperature(const v1::GenerateOptions& options, const v1::SamplingDefaults& defaults) {
  return options.has_temperature() ? options.temperature() : defaults.temperature();
}

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t(device()) << 32 | device();
}

std::optional<int32_t> NumLogprobs(bool has, int32_t value, int32_t vocab_size) {
  if (!has) return std::nullopt;
  return value == -1 ? vocab_size : value;
}

std::string FoundPrompt(int64_t tokens) {
  return absl::StrCat("found a prompt of ", tokens, tokens == 1 ? " token" : " tokens");
}

absl::Status ContextExceeded(absl::string_view prompt_field, int64_t prompt_tokens, std::optional<int64_t> max_tokens,
                             int64_t limit) {
  ErrorMetadata metadata = {{"prompt_tokens", absl::StrCat(prompt_tokens)}, {"max_model_len", absl::StrCat(limit)}};
  std::string found = FoundPrompt(prompt_tokens);
  if (max_tokens.has_value()) {
    metadata.push_back({"max_tokens", absl::StrCat(*max_tokens)});
    absl::StrAppend(&found, " and max_tokens ", *max_tokens);
  }
  absl::StrAppend(&found, ", expected ", max_tokens.has_value() ? "together at most " : "fewer than ", limit,
                  " tokens");
  return InvalidField(max_tokens.has_value() ? "options.max_tokens" : prompt_field, found,
                      kReasonContextLengthExceeded, metadata);
}

// The whole KV pool is smaller than the context: it holds the keys and values of `longest` tokens.
absl::Status PoolExceeded(absl::string_view prompt_field, int64_t prompt_tokens, std::optional<int64_t> max_tokens,
                          int64_t longest) {
  std::string found = FoundPrompt(prompt_tokens);
  if (!max_tokens.has_value()) {
    absl::StrAppend(&found, ", expected at most ", longest, ", what the KV cache holds");
    return InvalidField(prompt_field, found, kReasonKvCapacityExceeded);
  }
  // Those of the last token are never needed.
  absl::StrAppend(&found, " and max_tokens ", *max_tokens, ", expected together at most ", longest + 1,
                  " tokens, what the KV cache has room for");
  return InvalidField("options.max_tokens", found, kReasonKvCapacityExceeded);
}

absl::StatusOr<int32_t> ResolveMaxTokens(const v1::GenerateOptions& options, int64_t prompt_tokens,
                                         absl::string_view prompt_field, const EngineOptions& engine) {
  const int64_t context = engine.max_model_len;
  const int64_t longest = LongestSequence(engine);
  if (prompt_tokens >= context) return ContextExceeded(prompt_field, prompt_tokens, std::nullopt, context);
  if (prompt_tokens > longest) return PoolExceeded(prompt_field, prompt_tokens, std::nullopt, longest);
  // What is left; less than that where the whole KV pool is smaller than the context.
  if (!options.has_max_tokens()) return int32_t(std::max<int64_t>(1, longest - prompt_tokens));
  const int64_t max_tokens = options.max_tokens();
  if (prompt_tokens + max_tokens > context) return ContextExceeded(prompt_field, prompt_tokens, max_tokens, context);
  if (prompt_tokens + max_tokens > longest + 1) return PoolExceeded(prompt_field, prompt_tokens, max_tokens, longest);
  return int32_t(max_tokens);
}

}  // namespace

namespace internal {

absl::Status CheckRequestId(const std::string& request_id) {
  const bool visible = std::all_of(request_id.begin(), request_id.end(), [](char c) { return c > ' ' && c < 127; });
  if (visible && request_id.size() <= 128) return absl::OkStatus();
  return InvalidField("request_id",
                      absl::StrCat("found ", Quoted(request_id), ", expected at most 128 visible ASCII characters"));
}

absl::Status CheckLabels(const std::string& user, const google::protobuf::Map<std::string, std::string>& metadata) {
  if (user.size() > 128) {
    return InvalidField("user", absl::StrCat("found ", user.size(), " bytes, expected at most 128"));
  }
  if (metadata.size() > 16) {
    return InvalidField("metadata", absl::StrCat("found ", metadata.size(), " pairs, expected at most 16"));
  }
  for (const auto& [key, value] : metadata) {
    if (key.empty() || key.size() > 64 || value.size() > 512) {
      return InvalidField(absl::StrCat("metadata[", Quoted(key), "]"),
                          absl::StrCat("found a key of ", key.size(), " and a value of ", value.size(),
                                       " bytes, expected 1 to 64 and at most 512"));
    }
  }
  return absl::OkStatus();
}

}  // namespace internal

absl::StatusOr<std::vector<int32_t>> ConvertTokenIds(absl::string_view field,
                                                     const google::protobuf::RepeatedField<uint32_t>& ids,
                                                     int32_t vocab_size) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < uint32_t(vocab_size)) continue;
    return InvalidField(absl::StrCat(field, "[", i, "]"),
                        absl::StrCat("found token ", ids[i], ", expected one below ", vocab_size), kReasonInvalidToken);
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

v1::SamplingDefaults ResolvedDefaults(const GenerationDefaults& defaults) {
  const SamplingParams documented;
  v1::SamplingDefaults resolved;
  resolved.set_temperature(defaults.temperature.value_or(documented.temperature));
  resolved.set_top_p(defaults.top_p.value_or(documented.top_p));
  resolved.set_top_k(defaults.top_k.value_or(documented.top_k));
  resolved.set_min_p(defaults.min_p.value_or(documented.min_p));
  resolved.set_repetition_penalty(defaults.repetition_penalty.value_or(documented.repetition_penalty));
  return resolved;
}

absl::Status CheckOptions(const v1::GenerateOptions& options, const ServedModel& model) {
  SLUICE_RETURN_IF_ERROR(CheckUnimplemented(options));
  SLUICE_RETURN_IF_ERROR(CheckFloats(options));
  if (options.has_top_k() && options.top_k() < -1) {
    return InvalidField("options.top_k", absl::StrCat("found ", options.top_k(), ", expected -1 or more"));
  }
  if (options.has_max_tokens() && (options.max_tokens() == 0 || options.max_tokens() > uint32_t(1 << 30))) {
    return InvalidField("options.max_tokens",
                        absl::StrCat("found ", options.max_tokens(), ", expected 1 to ", 1 << 30));
  }
  if (options.has_max_tokens() && options.min_tokens() > options.max_tokens()) {
    return InvalidField(
        "options.min_tokens",
        absl::StrCat("found ", options.min_tokens(), ", expected at most max_tokens (", options.max_tokens(), ")"));
  }
  if (options.has_n() && (options.n() < 1 || options.n() > uint32_t(kMaxChoices))) {
    return InvalidField("options.n", absl::StrCat("found ", options.n(), ", expected 1 to ", kMaxChoices));
  }
  if (options.n() > 1 && Temperature(options, ResolvedDefaults(model.host().defaults)) == 0) {
    return InvalidField("options.n", absl::StrCat("found ", options.n(),
                                                  " with temperature 0, expected 1: all choices would "
                                                  "be the same"));
  }
  SLUICE_RETURN_IF_ERROR(CheckStops(options, model));
  SLUICE_RETURN_IF_ERROR(CheckLogitBias(options, model.host().engine.vocab_size));
  if (options.has_logprobs()) SLUICE_RETURN_IF_ERROR(CheckLogprobs("logprobs", options.logprobs(), model));
  if (options.has_prompt_logprobs()) {
    SLUICE_RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", options.prompt_logprobs(), model));
  }
  return absl::OkStatus();
}

absl::StatusOr<Generation> ConvertGeneration(const v1::GenerateOptions& options, std::vector<int32_t> prompt_tokens,
                                             absl::string_view prompt_field, const ServedModel& model) {
  const EngineOptions& engine = model.host().engine;
  if (prompt_tokens.empty()) return InvalidField(prompt_field, "found no tokens, expected at least one");
  Generation generation;
  SamplingParams& sampling = generation.sampling;
  SLUICE_ASSIGN_OR_RETURN(sampling.max_tokens,
                          ResolveMaxTokens(options, int64_t(prompt_tokens.size()), prompt_field, engine));
  if (int64_t{options.min_tokens()} > sampling.max_tokens) {
    return InvalidField("options.min_tokens", absl::StrCat("found ", options.min_tokens(), ", expected at most ",
                                                           sampling.max_tokens, ", what the context has left"));
  }
  const v1::SamplingDefaults defaults = ResolvedDefaults(model.host().defaults);
  sampling.min_tokens = int32_t(options.min_tokens());
  sampling.temperature = Temperature(options, defaults);
  sampling.top_p = options.has_top_p() ? options.top_p() : defaults.top_p();
  sampling.top_k = std::max(0, options.has_top_k() ? options.top_k() : defaults.top_k());
  sampling.min_p = options.has_min_p() ? options.min_p() : defaults.min_p();
  sampling.repetition_penalty =
      options.has_repetition_penalty() ? options.repetition_penalty() : defaults.repetition_penalty();
  sampling.presence_penalty = options.presence_penalty();
  sampling.frequency_penalty = options.frequency_penalty();
  sampling.seed = options.has_seed() ? options.seed() : RandomSeed();
  sampling.ignore_eos = options.ignore_eos();
  sampling.stop_token_ids.assign(options.stop_token_ids().begin(), options.stop_token_ids().end());
  for (const auto& [token, bias] : options.logit_bias()) {
    sampling.logit_bias.push_back({.token = int32_t(token), .bias = bias});
  }
  const auto by_token = [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; };
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end(), by_token);
  sampling.logprobs = NumLogprobs(options.has_logprobs(), options.logprobs(), engine.vocab_size);
  sampling.prompt_logprobs = NumLogprobs(options.has_prompt_logprobs(), options.prompt_logprobs(), engine.vocab_size);

  generation.num_choices = options.has_n() ? int32_t(options.n()) : 1;
  generation.stops.assign(options.stop().begin(), options.stop().end());
  auto matcher = StopMatcher::Create(generation.stops, options.include_stop_text());
  if (!matcher.ok()) return InvalidField("options.stop", matcher.status().message());
  generation.stop_matcher = *std::move(matcher);
  generation.include_stop_text = options.include_stop_text();
  generation.return_token_ids = options.return_token_ids() || model.host().tokenizer == nullptr;
  generation.prompt_tokens = std::move(prompt_tokens);
  return generation;
}

}  // namespace sluice
