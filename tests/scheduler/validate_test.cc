#include "engine/scheduler/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "engine/error_reason.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using testing::MakeRequest;
using testing::SmallOptions;
using ::testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

void ExpectRefused(const absl::Status& status, absl::string_view reason, const std::string& field) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_EQ(ReasonOf(status), reason) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith(field));
}

TEST(ValidateRequestTest, NamesEveryFieldOutOfRange) {
  struct Case {
    std::string field;
    std::function<void(SamplingParams&)> spoil;
  };
  const Case cases[] = {
      {"temperature", [](SamplingParams& s) { s.temperature = -0.1f; }},
      {"temperature", [](SamplingParams& s) { s.temperature = kNan; }},
      {"temperature", [](SamplingParams& s) { s.temperature = kInf; }},
      {"min_p", [](SamplingParams& s) { s.min_p = 1.1f; }},
      {"min_p", [](SamplingParams& s) { s.min_p = kNan; }},
      {"top_k", [](SamplingParams& s) { s.top_k = -1; }},
      {"top_p", [](SamplingParams& s) { s.top_p = 0; }},
      {"top_p", [](SamplingParams& s) { s.top_p = 1.5f; }},
      {"top_p", [](SamplingParams& s) { s.top_p = kNan; }},
      {"repetition_penalty", [](SamplingParams& s) { s.repetition_penalty = 0; }},
      {"repetition_penalty", [](SamplingParams& s) { s.repetition_penalty = kNan; }},
      {"frequency_penalty", [](SamplingParams& s) { s.frequency_penalty = kInf; }},
      {"presence_penalty", [](SamplingParams& s) { s.presence_penalty = kNan; }},
      {"logit_bias", [](SamplingParams& s) { s.logit_bias = {{.token = 1, .bias = kNan}}; }},
      {"max_tokens", [](SamplingParams& s) { s.max_tokens = 0; }},
      {"max_tokens", [](SamplingParams& s) { s.max_tokens = -5; }},
      {"min_tokens", [](SamplingParams& s) { s.min_tokens = -1; }},
      {"min_tokens", [](SamplingParams& s) { s.min_tokens = s.max_tokens + 1; }},
      {"logprobs", [](SamplingParams& s) { s.logprobs = -1; }},
      {"logprobs", [](SamplingParams& s) { s.logprobs = 1001; }},
      {"prompt_logprobs", [](SamplingParams& s) { s.prompt_logprobs = 1001; }},
  };
  for (const Case& c : cases) {
    Request request = MakeRequest({1, 2, 3}, 4);
    c.spoil(request.sampling);
    ExpectRefused(ValidateRequest(request, SmallOptions()), kReasonInvalidField, c.field);
  }
}

TEST(ValidateRequestTest, RefusesAnEmptyPrompt) {
  ExpectRefused(ValidateRequest(MakeRequest({}, 4), SmallOptions()), kReasonInvalidField, "prompt_tokens");
}

TEST(ValidateRequestTest, RefusesTokensOutsideTheVocabularyWhereverTheyStand) {
  for (int32_t token : {-1, 1000, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    ExpectRefused(ValidateRequest(MakeRequest({1, token}, 4), SmallOptions()), kReasonInvalidToken, "prompt_tokens[1]");
    Request bias = MakeRequest({1}, 4);
    bias.sampling.logit_bias = {{.token = 0, .bias = 1}, {.token = token, .bias = 1}};
    ExpectRefused(ValidateRequest(bias, SmallOptions()), kReasonInvalidToken, "logit_bias[1]");
    Request stop = MakeRequest({1}, 4);
    stop.sampling.stop_token_ids = {token};
    ExpectRefused(ValidateRequest(stop, SmallOptions()), kReasonInvalidToken, "stop_token_ids[0]");
    Request allowed = MakeRequest({1}, 4);
    allowed.sampling.allowed_token_ids = {0, 0, token};
    ExpectRefused(ValidateRequest(allowed, SmallOptions()), kReasonInvalidToken, "allowed_token_ids[2]");
  }
}

TEST(ValidateRequestTest, TakesWhatFillsTheContextExactlyAndNotOneTokenMore) {
  EngineOptions options = SmallOptions();
  options.max_model_len = 20;
  EXPECT_EQ(ValidateRequest(MakeRequest(std::vector<int32_t>(19, 1), 1), options), absl::OkStatus());
  EXPECT_EQ(ValidateRequest(MakeRequest({1}, 19), options), absl::OkStatus());
  ExpectRefused(ValidateRequest(MakeRequest(std::vector<int32_t>(20, 1), 1), options), kReasonContextLengthExceeded,
                "max_tokens");
  ExpectRefused(ValidateRequest(MakeRequest(std::vector<int32_t>(21, 1), 1), options), kReasonContextLengthExceeded,
                "max_tokens");
  ExpectRefused(ValidateRequest(MakeRequest({1}, 20), options), kReasonContextLengthExceeded, "max_tokens");
  ExpectRefused(ValidateRequest(MakeRequest({1}, std::numeric_limits<int32_t>::max()), options),
                kReasonContextLengthExceeded, "max_tokens");
}

TEST(ValidateRequestTest, TakesWhatFillsThePoolExactlyAndNotOneTokenMore) {
  EngineOptions options = SmallOptions();
  options.num_blocks = 5;  // of 4 tokens; the last token of an output needs no room
  EXPECT_EQ(ValidateRequest(MakeRequest(std::vector<int32_t>(20, 1), 1), options), absl::OkStatus());
  EXPECT_EQ(ValidateRequest(MakeRequest({1}, 20), options), absl::OkStatus());
  ExpectRefused(ValidateRequest(MakeRequest(std::vector<int32_t>(21, 1), 1), options), kReasonKvCapacityExceeded,
                "max_tokens");
  ExpectRefused(ValidateRequest(MakeRequest({1}, 21), options), kReasonKvCapacityExceeded, "max_tokens");
}

TEST(ValidateRequestTest, RefusesStopTokensThatLeaveNothingToDraw) {
  EngineOptions options = SmallOptions();
  options.vocab_size = 4;
  options.eos_token_ids = {3};
  Request request = MakeRequest({1}, 4);
  request.sampling.stop_token_ids = {0, 1, 2};
  EXPECT_EQ(ValidateRequest(request, options), absl::OkStatus());
  request.sampling.min_tokens = 1;
  ExpectRefused(ValidateRequest(request, options), kReasonInvalidField, "stop_token_ids");
}

TEST(ValidateRequestTest, RefusesAllowedTokensThatMinTokensKeepsBack) {
  Request request = MakeRequest({1}, 4);
  request.sampling.stop_token_ids = {7};
  request.sampling.allowed_token_ids = {7, 999, 7};
  EXPECT_EQ(ValidateRequest(request, SmallOptions()), absl::OkStatus());
  request.sampling.min_tokens = 1;
  ExpectRefused(ValidateRequest(request, SmallOptions()), kReasonInvalidField, "allowed_token_ids");
  request.sampling.allowed_token_ids.push_back(8);
  EXPECT_EQ(ValidateRequest(request, SmallOptions()), absl::OkStatus());
}

TEST(ValidateEngineOptionsTest, NamesTheOption) {
  struct Case {
    std::string option;
    std::function<void(EngineOptions&)> spoil;
  };
  const Case cases[] = {
      {"max_model_len", [](EngineOptions& o) { o.max_model_len = 0; }},
      {"vocab_size", [](EngineOptions& o) { o.vocab_size = 0; }},
      {"block_size", [](EngineOptions& o) { o.block_size = 0; }},
      {"num_blocks", [](EngineOptions& o) { o.num_blocks = -1; }},
      {"max_num_seqs", [](EngineOptions& o) { o.max_num_seqs = 0; }},
      {"max_num_batched_tokens", [](EngineOptions& o) { o.max_num_batched_tokens = 0; }},
      {"max_num_batched_tokens", [](EngineOptions& o) { o.max_num_batched_tokens = o.max_num_seqs - 1; }},
      {"max_prefill_tokens_beside_decodes", [](EngineOptions& o) { o.max_prefill_tokens_beside_decodes = -1; }},
      {"max_queued_requests", [](EngineOptions& o) { o.max_queued_requests = 0; }},
      {"max_queued_tokens", [](EngineOptions& o) { o.max_queued_tokens = 0; }},
      {"max_queue_seconds", [](EngineOptions& o) { o.max_queue_seconds = -1; }},
      {"eos_token_ids", [](EngineOptions& o) { o.eos_token_ids = {1000}; }},
  };
  EXPECT_EQ(ValidateEngineOptions(SmallOptions()), absl::OkStatus());
  for (const Case& c : cases) {
    EngineOptions options = SmallOptions();
    c.spoil(options);
    const absl::Status status = ValidateEngineOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), StartsWith(c.option));
  }
}

TEST(ErrorReasonTest, TravelsWithTheStatus) {
  const absl::Status status = WithReason(absl::UnavailableError("no"), kReasonDraining);
  const absl::Status copy = status;
  EXPECT_EQ(ReasonOf(copy), "DRAINING");
  EXPECT_EQ(copy.message(), "no");
  EXPECT_EQ(ReasonOf(absl::UnavailableError("no")), "");
  EXPECT_EQ(ReasonOf(absl::OkStatus()), "");
}

}  // namespace
}  // namespace sluice
