#include "server/calls/convert.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/scheduler/kv_blocks.h"
#include "engine/scheduler/validate.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

// Of what a request may set; a model's own defaults may go further.
constexpr SamplingRanges kRequestRanges = {.temperature = {.min = 0, .max = 2},
                                           .repetition_penalty = {.min = 1e-6f, .max = 1e6f},
                                           .frequency_penalty = {.min = -2, .max = 2},
                                           .presence_penalty = {.min = -2, .max = 2},
                                           .logit_bias = {.min = -100, .max = 100}};

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
  return ConvertTokenIds("options.stop_token_ids", options.stop_token_ids(), model.host().engine.vocab_size).status();
}

absl::Status CheckAllowedTokenIds(const v1::GenerateOptions& options, int32_t vocab_size) {
  if (options.allowed_token_ids_size() > kMaxAllowedTokenIds) {
    return InvalidField("options.allowed_token_ids", absl::StrCat("found ", options.allowed_token_ids_size(),
                                                                  " ids, expected at most ", kMaxAllowedTokenIds));
  }
  return ConvertTokenIds("options.allowed_token_ids", options.allowed_token_ids(), vocab_size).status();
}

absl::Status CheckLogitBias(const v1::GenerateOptions& options, int32_t vocab_size) {
  if (options.logit_bias_size() > kMaxLogitBias) {
    return InvalidField("options.logit_bias", absl::StrCat("found ", options.logit_bias_size(),
                                                           " entries, expected at most ", kMaxLogitBias));
  }
  for (const auto& [token, bias] : options.logit_bias()) {
    if (token < uint32_t(vocab_size)) continue;
    return InvalidField(absl::StrCat("options.logit_bias[", token, "]"),
                        absl::StrCat("found token ", token, ", expected one below ", vocab_size), kReasonInvalidToken);
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

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t(device()) << 32 | device();
}

std::optional<int32_t> NumLogprobs(bool has, int32_t value, int32_t vocab_size) {
  if (!has) return std::nullopt;
  return value == -1 ? vocab_size : value;
}

// What a request says of sampling, checked for its form only; what it does not say stays as `sampling` has it.
SamplingParams ConvertSampling(const v1::GenerateOptions& options, SamplingParams sampling, int32_t vocab_size) {
  if (options.has_temperature()) sampling.temperature = options.temperature();
  if (options.has_top_p()) sampling.top_p = options.top_p();
  if (options.has_top_k()) sampling.top_k = std::max(0, options.top_k());
  if (options.has_min_p()) sampling.min_p = options.min_p();
  if (options.has_repetition_penalty()) sampling.repetition_penalty = options.repetition_penalty();
  if (options.has_max_tokens()) sampling.max_tokens = int32_t(options.max_tokens());
  sampling.min_tokens = int32_t(std::min<uint32_t>(options.min_tokens(), INT32_MAX));
  sampling.presence_penalty = options.presence_penalty();
  sampling.frequency_penalty = options.frequency_penalty();
  sampling.seed = options.seed();
  sampling.ignore_eos = options.ignore_eos();
  sampling.stop_token_ids.assign(options.stop_token_ids().begin(), options.stop_token_ids().end());
  sampling.allowed_token_ids.assign(options.allowed_token_ids().begin(), options.allowed_token_ids().end());
  for (const auto& [token, bias] : options.logit_bias()) {
    sampling.logit_bias.push_back({.token = int32_t(token), .bias = bias});
  }
  const auto by_token = [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; };
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end(), by_token);
  sampling.logprobs = NumLogprobs(options.has_logprobs(), options.logprobs(), vocab_size);
  sampling.prompt_logprobs = NumLogprobs(options.has_prompt_logprobs(), options.prompt_logprobs(), vocab_size);
  return sampling;
}

// What the engine says of `sampling`, in the request's terms.
absl::Status OfRequest(const absl::Status& status, const SamplingParams& sampling, const ErrorMetadata& metadata = {}) {
  if (status.ok()) return status;
  std::pair<absl::string_view, absl::string_view> said = absl::StrSplit(status.message(), absl::MaxSplits(": ", 1));
  std::string field = absl::StrCat("options.", said.first);
  // The engine counts biases, a request names them by their tokens.
  size_t index = 0;
  if (absl::ConsumePrefix(&said.first, "logit_bias[") && absl::SimpleAtoi(absl::StripSuffix(said.first, "]"), &index)) {
    field = absl::StrCat("options.logit_bias[", sampling.logit_bias[index].token, "]");
  }
  return InvalidField(field, said.second, ReasonOf(status), metadata);
}

// Room for one token at least, and how many there are without max_tokens: what is left of the context, less where the
// whole KV pool is smaller than the context.
absl::StatusOr<int32_t> RoomForTokens(int64_t prompt_tokens, absl::string_view prompt_field,
                                      const EngineOptions& engine) {
  const std::string found =
      absl::StrCat("found a prompt of ", prompt_tokens, prompt_tokens == 1 ? " token" : " tokens");
  if (prompt_tokens >= engine.max_model_len) {
    return InvalidField(prompt_field, absl::StrCat(found, ", expected fewer than ", engine.max_model_len, " tokens"),
                        kReasonContextLengthExceeded,
                        {{"prompt_tokens", absl::StrCat(prompt_tokens)},
                         {"max_model_len", absl::StrCat(engine.max_model_len)}});
  }
  const int64_t longest = LongestSequence(engine);
  if (prompt_tokens > longest) {
    return InvalidField(prompt_field, absl::StrCat(found, ", expected at most ", longest, ", what the KV cache holds"),
                        kReasonKvCapacityExceeded);
  }
  return int32_t(std::max<int64_t>(1, longest - prompt_tokens));
}

}  // namespace

namespace internal {

absl::Status CheckRequestId(const std::string& request_id) {
  const bool visible = std::all_of(request_id.begin(), request_id.end(), [](char c) { return c > ' ' && c < 127; });
  if (visible && request_id.size() <= 128) return absl::OkStatus();
  return InvalidField("request_id",
                      absl::StrCat("found ", Quoted(request_id), ", expected at most 128 visible ASCII characters"));
}

absl::Status CheckCacheSalt(const std::string& cache_salt) {
  if (cache_salt.size() <= 128) return absl::OkStatus();
  return InvalidField("cache_salt", absl::StrCat("found ", cache_salt.size(), " bytes, expected at most 128"));
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
  if (options.has_top_k() && options.top_k() < -1) {
    return InvalidField("options.top_k", absl::StrCat("found ", options.top_k(), ", expected -1 or more"));
  }
  if (options.has_max_tokens() && (options.max_tokens() == 0 || options.max_tokens() > uint32_t(1 << 30))) {
    return InvalidField("options.max_tokens",
                        absl::StrCat("found ", options.max_tokens(), ", expected 1 to ", 1 << 30));
  }
  if (options.has_n() && (options.n() < 1 || options.n() > uint32_t(kMaxChoices))) {
    return InvalidField("options.n", absl::StrCat("found ", options.n(), ", expected 1 to ", kMaxChoices));
  }
  const float default_temperature = ResolvedDefaults(model.host().defaults).temperature();
  if (options.n() > 1 && (options.has_temperature() ? options.temperature() : default_temperature) == 0) {
    return InvalidField("options.n", absl::StrCat("found ", options.n(),
                                                  " with temperature 0, expected 1: all choices would "
                                                  "be the same"));
  }
  SLUICE_RETURN_IF_ERROR(CheckStops(options, model));
  SLUICE_RETURN_IF_ERROR(CheckAllowedTokenIds(options, model.host().engine.vocab_size));
  SLUICE_RETURN_IF_ERROR(CheckLogitBias(options, model.host().engine.vocab_size));
  if (options.has_logprobs()) SLUICE_RETURN_IF_ERROR(CheckLogprobs("logprobs", options.logprobs(), model));
  if (options.has_prompt_logprobs()) {
    SLUICE_RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", options.prompt_logprobs(), model));
  }
  const EngineOptions& engine = model.host().engine;
  SamplingParams unset;
  unset.max_tokens = INT32_MAX;
  const SamplingParams said = ConvertSampling(options, std::move(unset), engine.vocab_size);
  return OfRequest(ValidateSampling(said, engine, kRequestRanges), said);
}

absl::StatusOr<Generation> ConvertGeneration(const v1::GenerateOptions& options, std::vector<int32_t> prompt_tokens,
                                             absl::string_view prompt_field, const ServedModel& model) {
  const EngineOptions& engine = model.host().engine;
  if (prompt_tokens.empty()) return InvalidField(prompt_field, "found no tokens, expected at least one");
  SLUICE_ASSIGN_OR_RETURN(const int32_t room, RoomForTokens(int64_t(prompt_tokens.size()), prompt_field, engine));
  const v1::SamplingDefaults defaults = ResolvedDefaults(model.host().defaults);
  SamplingParams unset;
  unset.temperature = defaults.temperature();
  unset.top_p = defaults.top_p();
  unset.top_k = std::max(0, defaults.top_k());
  unset.min_p = defaults.min_p();
  unset.repetition_penalty = defaults.repetition_penalty();
  unset.max_tokens = room;
  Generation generation;
  SamplingParams& sampling = generation.sampling;
  sampling = ConvertSampling(options, std::move(unset), engine.vocab_size);
  if (!options.has_seed()) sampling.seed = RandomSeed();
  const absl::Status fits = ValidateLength(int64_t(prompt_tokens.size()), sampling.max_tokens, engine);
  ErrorMetadata numbers;
  if (ReasonOf(fits) == kReasonContextLengthExceeded) {
    numbers = {{"prompt_tokens", absl::StrCat(prompt_tokens.size())},
               {"max_model_len", absl::StrCat(engine.max_model_len)},
               {"max_tokens", absl::StrCat(sampling.max_tokens)}};
  }
  SLUICE_RETURN_IF_ERROR(OfRequest(fits, sampling, numbers));
  if (sampling.min_tokens > sampling.max_tokens) {
    return InvalidField("options.min_tokens", absl::StrCat("found ", options.min_tokens(), ", expected at most ",
                                                           sampling.max_tokens, ", what the context has left"));
  }

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
