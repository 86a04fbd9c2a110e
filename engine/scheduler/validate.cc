#include "engine/scheduler/validate.h"

#include <cstdint>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "engine/error_reason.h"
#include "engine/scheduler/kv_blocks.h"

namespace sluice {
namespace {

absl::Status FieldError(absl::string_view message) {
  return WithReason(absl::InvalidArgumentError(message), kReasonInvalidField);
}

absl::Status CheckToken(absl::string_view field, size_t index, int32_t token, int32_t vocab_size) {
  if (token >= 0 && token < vocab_size) return absl::OkStatus();
  return WithReason(absl::InvalidArgumentError(absl::StrCat(field, "[", index, "]: found token ", token,
                                                            ", expected one below ", vocab_size)),
                    kReasonInvalidToken);
}

absl::Status CheckTokens(absl::string_view field, absl::Span<const int32_t> tokens, int32_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(CheckToken(field, i, tokens[i], vocab_size));
  }
  return absl::OkStatus();
}

// Written so that a NaN is in no range.
absl::Status CheckRange(absl::string_view field, float value, const SamplingRange& range) {
  const bool above = range.above_min ? value > range.min : value >= range.min;
  if (above && value <= range.max) return absl::OkStatus();
  return FieldError(absl::StrCat(field, ": found ", value, ", expected ", range.above_min ? "above " : "", range.min,
                                 range.above_min ? " up to " : " to ", range.max));
}

absl::Status CheckCount(absl::string_view field, int64_t value, bool in_range, absl::string_view expected) {
  if (in_range) return absl::OkStatus();
  return FieldError(absl::StrCat(field, ": found ", value, ", expected ", expected));
}

absl::Status CheckNumLogprobs(absl::string_view field, std::optional<int32_t> value, int32_t vocab_size) {
  if (!value.has_value()) return absl::OkStatus();
  return CheckCount(field, *value, *value >= 0 && *value <= vocab_size, absl::StrCat("0 to ", vocab_size));
}

// Below min_tokens no end or stop token is drawn; something must be left.
absl::Status CheckMinTokensCanBeDrawn(const SamplingParams& s, const EngineOptions& options) {
  absl::flat_hash_set<int32_t> masked(s.stop_token_ids.begin(), s.stop_token_ids.end());
  masked.insert(options.eos_token_ids.begin(), options.eos_token_ids.end());
  if (int32_t(masked.size()) >= options.vocab_size) {
    return FieldError(absl::StrCat("stop_token_ids: found ", s.stop_token_ids.size(),
                                   " ids which with min_tokens leave no token to draw, expected fewer"));
  }
  const auto is_masked = [&](int32_t token) { return masked.contains(token); };
  if (!s.allowed_token_ids.empty() && absl::c_all_of(s.allowed_token_ids, is_masked)) {
    return FieldError(absl::StrCat("allowed_token_ids: found ", s.allowed_token_ids.size(),
                                   s.allowed_token_ids.size() == 1 ? " id" : " ids",
                                   ", end and stop tokens all of them, which min_tokens keeps back; expected another one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateEngineOptions(const EngineOptions& o) {
  const auto at_least_one = [](absl::string_view name, int64_t value) {
    if (value >= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, ": is ", value, ", expected 1 or more"));
  };
  SLUICE_RETURN_IF_ERROR(at_least_one("max_model_len", o.max_model_len));
  SLUICE_RETURN_IF_ERROR(at_least_one("vocab_size", o.vocab_size));
  SLUICE_RETURN_IF_ERROR(at_least_one("block_size", o.block_size));
  SLUICE_RETURN_IF_ERROR(at_least_one("num_blocks", o.num_blocks));
  SLUICE_RETURN_IF_ERROR(at_least_one("max_num_seqs", o.max_num_seqs));
  SLUICE_RETURN_IF_ERROR(at_least_one("max_num_batched_tokens", o.max_num_batched_tokens));
  SLUICE_RETURN_IF_ERROR(at_least_one("max_queued_requests", o.max_queued_requests));
  SLUICE_RETURN_IF_ERROR(at_least_one("max_queued_tokens", o.max_queued_tokens));
  if (o.max_queue_seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_queue_seconds: is ", o.max_queue_seconds, ", expected 0 (no limit) or more"));
  }
  if (o.max_prefill_tokens_beside_decodes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_prefill_tokens_beside_decodes: is ",
                                                   o.max_prefill_tokens_beside_decodes, ", expected 0 (auto) or more"));
  }
  if (o.max_num_batched_tokens < o.max_num_seqs) {
    return absl::InvalidArgumentError(absl::StrCat("max_num_batched_tokens: is ", o.max_num_batched_tokens,
                                                   ", expected at least max_num_seqs (", o.max_num_seqs,
                                                   "), so that every running sequence gets its token in each step"));
  }
  if (o.kv_groups.empty()) return absl::InvalidArgumentError("kv_groups: is empty, expected at least one");
  for (size_t i = 0; i < o.kv_groups.size(); ++i) {
    if (o.kv_groups[i].kind == MaskKind::kFull) continue;
    SLUICE_RETURN_IF_ERROR(at_least_one(absl::StrCat("kv_groups[", i, "].size"), o.kv_groups[i].size));
  }
  return CheckTokens("eos_token_ids", o.eos_token_ids, o.vocab_size);
}

absl::Status ValidateSampling(const SamplingParams& s, const EngineOptions& options, const SamplingRanges& ranges) {
  SLUICE_RETURN_IF_ERROR(CheckRange("temperature", s.temperature, ranges.temperature));
  SLUICE_RETURN_IF_ERROR(CheckRange("top_p", s.top_p, {.min = 0, .max = 1, .above_min = true}));
  SLUICE_RETURN_IF_ERROR(CheckRange("min_p", s.min_p, {.min = 0, .max = 1}));
  SLUICE_RETURN_IF_ERROR(CheckRange("repetition_penalty", s.repetition_penalty, ranges.repetition_penalty));
  SLUICE_RETURN_IF_ERROR(CheckRange("presence_penalty", s.presence_penalty, ranges.presence_penalty));
  SLUICE_RETURN_IF_ERROR(CheckRange("frequency_penalty", s.frequency_penalty, ranges.frequency_penalty));
  SLUICE_RETURN_IF_ERROR(CheckCount("top_k", s.top_k, s.top_k >= 0, "0 (off) or more"));
  SLUICE_RETURN_IF_ERROR(CheckCount("max_tokens", s.max_tokens, s.max_tokens >= 1, "1 or more"));
  SLUICE_RETURN_IF_ERROR(CheckCount("min_tokens", s.min_tokens, s.min_tokens >= 0, "0 or more"));
  SLUICE_RETURN_IF_ERROR(CheckCount("min_tokens", s.min_tokens, s.min_tokens <= s.max_tokens,
                                    absl::StrCat("at most max_tokens (", s.max_tokens, ")")));
  SLUICE_RETURN_IF_ERROR(CheckTokens("stop_token_ids", s.stop_token_ids, options.vocab_size));
  SLUICE_RETURN_IF_ERROR(CheckTokens("allowed_token_ids", s.allowed_token_ids, options.vocab_size));
  if (s.min_tokens > 0) SLUICE_RETURN_IF_ERROR(CheckMinTokensCanBeDrawn(s, options));
  for (size_t i = 0; i < s.logit_bias.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(CheckToken("logit_bias", i, s.logit_bias[i].token, options.vocab_size));
    SLUICE_RETURN_IF_ERROR(CheckRange(absl::StrCat("logit_bias[", i, "]"), s.logit_bias[i].bias, ranges.logit_bias));
  }
  SLUICE_RETURN_IF_ERROR(CheckNumLogprobs("logprobs", s.logprobs, options.vocab_size));
  return CheckNumLogprobs("prompt_logprobs", s.prompt_logprobs, options.vocab_size);
}

absl::Status ValidateLength(int64_t num_prompt_tokens, int64_t max_tokens, const EngineOptions& options) {
  const auto check = [&](int64_t most, absl::string_view of_what, absl::string_view reason) {
    if (num_prompt_tokens + max_tokens <= most) return absl::OkStatus();
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "max_tokens: found a prompt of ", num_prompt_tokens,
                          num_prompt_tokens == 1 ? " token" : " tokens", " and max_tokens ", max_tokens,
                          ", expected together at most ", most, " tokens", of_what)),
                      reason);
  };
  SLUICE_RETURN_IF_ERROR(check(options.max_model_len, "", kReasonContextLengthExceeded));
  // The K and V of the last token are never needed.
  return check(int64_t{LongestSequence(options)} + 1, ", what the KV cache has room for", kReasonKvCapacityExceeded);
}

absl::Status ValidateRequest(const Request& request, const EngineOptions& options) {
  if (request.adapter != 0) {
    return FieldError(absl::StrCat("adapter: found ", request.adapter, ", expected 0: no adapters are loaded"));
  }
  if (request.prompt_tokens.empty()) return FieldError("prompt_tokens: is empty, expected at least one token");
  SLUICE_RETURN_IF_ERROR(CheckTokens("prompt_tokens", request.prompt_tokens, options.vocab_size));
  SLUICE_RETURN_IF_ERROR(ValidateSampling(request.sampling, options));
  return ValidateLength(int64_t(request.prompt_tokens.size()), request.sampling.max_tokens, options);
}

}  // namespace sluice
