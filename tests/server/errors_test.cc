// What a client does wrong, or cannot have, it is told: code, reason, field, numbers.
#include <cmath>
#include <limits>

#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

class ErrorsTest : public ServerTest {
 protected:
  ErrorsTest() { Start(); }

  // The call fails so; nothing of it stays behind.
  void ExpectError(const v1::CompleteRequest& request, grpc::StatusCode code, const std::string& reason,
                   const std::string& field) {
    const grpc::Status status = Complete(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    if (status.ok()) return;
    const ErrorDetails details = DetailsOf(status);
    EXPECT_EQ(details.info.reason(), reason) << status.error_message();
    EXPECT_EQ(details.field(), field) << status.error_message();
  }
  void ExpectInvalid(const std::string& field, const std::function<void(v1::GenerateOptions*)>& change,
                     const std::string& reason = "INVALID_FIELD") {
    SCOPED_TRACE(field);
    v1::CompleteRequest request = Prompt("abc", 8);
    change(request.mutable_options());
    ExpectError(request, grpc::INVALID_ARGUMENT, reason, field);
  }
  void ExpectUnimplemented(const std::string& field, const std::function<void(v1::CompleteRequest*)>& change) {
    SCOPED_TRACE(field);
    v1::CompleteRequest request = Prompt("abc", 8);
    change(&request);
    ExpectError(request, grpc::UNIMPLEMENTED, "FEATURE_NOT_IMPLEMENTED", field);
  }
};

TEST_F(ErrorsTest, EveryOptionOutOfRangeIsNamed) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (float bad : {-0.1f, 2.1f, nan, inf}) {
    ExpectInvalid("options.temperature", [&](auto* o) { o->set_temperature(bad); });
  }
  for (float bad : {0.0f, 1.1f, nan, -inf}) {
    ExpectInvalid("options.top_p", [&](auto* o) { o->set_top_p(bad); });
  }
  for (float bad : {-0.1f, 1.1f, nan}) {
    ExpectInvalid("options.min_p", [&](auto* o) { o->set_min_p(bad); });
  }
  for (float bad : {0.0f, -1.0f, 9e-7f, 1.1e6f, nan, inf}) {
    ExpectInvalid("options.repetition_penalty", [&](auto* o) { o->set_repetition_penalty(bad); });
  }
  for (float bad : {-2.1f, 2.1f, nan}) {
    ExpectInvalid("options.presence_penalty", [&](auto* o) { o->set_presence_penalty(bad); });
    ExpectInvalid("options.frequency_penalty", [&](auto* o) { o->set_frequency_penalty(bad); });
  }
  ExpectInvalid("options.top_k", [](auto* o) { o->set_top_k(-2); });
  ExpectInvalid("options.max_tokens", [](auto* o) { o->set_max_tokens(0); });
  ExpectInvalid("options.max_tokens", [](auto* o) { o->set_max_tokens(4'000'000'000u); });
  ExpectInvalid("options.min_tokens", [](auto* o) { o->set_min_tokens(9); });
  ExpectInvalid("options.min_tokens", [](auto* o) { o->set_min_tokens(4'000'000'000u); });
  ExpectInvalid("options.n", [](auto* o) { o->set_n(0); });
  ExpectInvalid("options.n", [](auto* o) { o->set_n(17); });
  ExpectInvalid("options.n", [](auto* o) {
    o->set_n(2);
    o->set_temperature(0);
  });
  ExpectInvalid("options.logprobs", [](auto* o) { o->set_logprobs(21); });
  ExpectInvalid("options.logprobs", [](auto* o) { o->set_logprobs(-1); });
  ExpectInvalid("options.prompt_logprobs", [](auto* o) { o->set_prompt_logprobs(21); });
  ExpectInvalid("options.stop", [](auto* o) {
    for (int i = 0; i < 17; ++i) o->add_stop("x");
  });
  ExpectInvalid("options.stop[1]", [](auto* o) {
    o->add_stop("x");
    o->add_stop("");
  });
  ExpectInvalid("options.stop_token_ids", [](auto* o) {
    for (int i = 0; i < 65; ++i) o->add_stop_token_ids(1);
  });
  ExpectInvalid(
      "options.stop_token_ids[0]", [](auto* o) { o->add_stop_token_ids(kFakeVocabSize); }, "INVALID_TOKEN");
  ExpectInvalid("options.allowed_token_ids", [](auto* o) {
    for (int i = 0; i < 4097; ++i) o->add_allowed_token_ids(1);
  });
  for (uint32_t bad : {uint32_t(kFakeVocabSize), 0xffffffffu}) {
    ExpectInvalid(
        "options.allowed_token_ids[1]",
        [&](auto* o) {
          o->add_allowed_token_ids(kFakeVocabSize - 1);
          o->add_allowed_token_ids(bad);
        },
        "INVALID_TOKEN");
  }
  ExpectInvalid("options.allowed_token_ids", [](auto* o) {
    o->add_allowed_token_ids(kEnd);
    o->set_min_tokens(1);
  });
  ExpectInvalid(
      "options.logit_bias[259]", [](auto* o) { (*o->mutable_logit_bias())[259] = 1; }, "INVALID_TOKEN");
  ExpectInvalid("options.logit_bias[5]", [](auto* o) { (*o->mutable_logit_bias())[5] = 101; });
  ExpectInvalid("options.logit_bias[5]", [&](auto* o) { (*o->mutable_logit_bias())[5] = nan; });
  WaitUntilIdle();
  EXPECT_TRUE(Complete(Prompt("abc")).ok());
}

TEST_F(ErrorsTest, WhatWasFoundAndWhatWasExpectedIsSaid) {
  const auto sentence = [this](const std::function<void(v1::GenerateOptions*)>& change) {
    v1::CompleteRequest request = Prompt("abc", 8);
    change(request.mutable_options());
    return Complete(request).error_message();
  };
  EXPECT_EQ(sentence([](auto* o) { o->set_temperature(3); }), "options.temperature: found 3, expected 0 to 2");
  EXPECT_EQ(sentence([](auto* o) { o->set_top_p(0); }), "options.top_p: found 0, expected above 0 up to 1");
  EXPECT_EQ(sentence([](auto* o) { o->set_repetition_penalty(0); }),
            "options.repetition_penalty: found 0, expected 1e-06 to 1e+06");
  EXPECT_EQ(sentence([](auto* o) { o->set_frequency_penalty(-2.5f); }),
            "options.frequency_penalty: found -2.5, expected -2 to 2");
  EXPECT_EQ(sentence([](auto* o) {
              (*o->mutable_logit_bias())[5] = 1;
              (*o->mutable_logit_bias())[7] = 101;
            }),
            "options.logit_bias[7]: found 101, expected -100 to 100");
  EXPECT_EQ(sentence([](auto* o) { o->set_min_tokens(9); }),
            "options.min_tokens: found 9, expected at most max_tokens (8)");
  EXPECT_EQ(sentence([](auto* o) {
              o->clear_max_tokens();
              o->set_min_tokens(253);
            }),
            "options.min_tokens: found 253, expected at most 252, what the context has left");
  EXPECT_EQ(sentence([](auto* o) { o->set_max_tokens(253); }),
            "options.max_tokens: found a prompt of 4 tokens and max_tokens 253, expected together at most 256 tokens");
}

TEST_F(ErrorsTest, WhatIsNotBuiltIsNamed) {
  ExpectUnimplemented("options.echo", [](auto* r) { r->mutable_options()->set_echo(true); });
  ExpectUnimplemented("options.json_object", [](auto* r) { r->mutable_options()->set_json_object(true); });
  ExpectUnimplemented("options.json_schema", [](auto* r) { r->mutable_options()->set_json_schema("{}"); });
  ExpectUnimplemented("options.regex", [](auto* r) { r->mutable_options()->set_regex("a"); });
  ExpectUnimplemented("options.grammar", [](auto* r) { r->mutable_options()->set_grammar("a"); });
  ExpectUnimplemented("options.choices", [](auto* r) { r->mutable_options()->mutable_choices()->add_values("a"); });
  ExpectUnimplemented("priority", [](auto* r) { r->set_priority(0); });
}

TEST_F(ErrorsTest, TheEnvelopeIsChecked) {
  v1::CompleteRequest request;
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "prompt");
  request = Prompt("");
  request.set_add_special_tokens(false);
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "prompt");
  request = Prompt("abc");
  request.set_request_id(std::string(129, 'x'));
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "request_id");
  request.set_request_id("a b");
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "request_id");
  request = Prompt("abc");
  request.set_cache_salt(std::string(128, 'x'));
  EXPECT_TRUE(Complete(request).ok());
  request.set_cache_salt(std::string(129, 'x'));
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "cache_salt");
  request = Prompt("abc");
  request.set_user(std::string(129, 'x'));
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "user");
  request = Prompt("abc");
  for (int i = 0; i < 17; ++i) (*request.mutable_metadata())[std::to_string(i)] = "x";
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "metadata");
  request = Prompt("abc");
  (*request.mutable_metadata())["k"] = std::string(513, 'x');
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "metadata['k']");
}

TEST_F(ErrorsTest, TokenIdsOutsideTheVocabularyAreNamed) {
  v1::CompleteRequest request;
  request.mutable_prompt_ids()->add_ids(1);
  request.mutable_prompt_ids()->add_ids(kFakeVocabSize);
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_TOKEN", "prompt_ids.ids[1]");
  request.mutable_prompt_ids()->set_ids(1, 0xFFFFFFFF);
  ExpectError(request, grpc::INVALID_ARGUMENT, "INVALID_TOKEN", "prompt_ids.ids[1]");
}

TEST_F(ErrorsTest, AnUnknownModelIsNotFound) {
  v1::CompleteRequest request = Prompt("abc");
  request.set_model("other");
  ExpectError(request, grpc::NOT_FOUND, "MODEL_NOT_FOUND", "");
}

TEST_F(ErrorsTest, APromptOverTheContextSaysBothNumbers) {
  // 255 letters and the begin token fill the context: no room for a token.
  ExpectError(Prompt(std::string(255, 'x')), grpc::INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED", "prompt");
  const ErrorDetails details = DetailsOf(Complete(Prompt(std::string(255, 'x'))));
  EXPECT_EQ(details.info.metadata().at("prompt_tokens"), "256");
  EXPECT_EQ(details.info.metadata().at("max_model_len"), "256");
  EXPECT_EQ(CompleteOk(Prompt(std::string(254, 'x'))).usage().completion_tokens(), 1u);
}

TEST_F(ErrorsTest, ThePromptIsNamedByTheFieldThatHoldsIt) {
  v1::CompleteRequest ids;
  ids.mutable_prompt_ids();
  ExpectError(ids, grpc::INVALID_ARGUMENT, "INVALID_FIELD", "prompt_ids.ids");
  ids.mutable_prompt_ids()->mutable_ids()->Resize(256, 'x');
  ExpectError(ids, grpc::INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED", "prompt_ids.ids");

  v1::ChatRequest chat;
  v1::ChatMessage* message = chat.add_messages();
  message->set_role(v1::ROLE_USER);
  message->add_content()->set_text(std::string(256, 'x'));
  grpc::ClientContext context;
  v1::ChatResponse response;
  const grpc::Status status = generation()->Chat(&context, chat, &response);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).info.reason(), "CONTEXT_LENGTH_EXCEEDED");
  EXPECT_EQ(DetailsOf(status).field(), "messages");
}

TEST_F(ErrorsTest, PromptAndMaxTokensOverTheContextSayAllNumbers) {
  ExpectError(Prompt("abc", 253), grpc::INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED", "options.max_tokens");
  EXPECT_EQ(DetailsOf(Complete(Prompt("abc", 253))).info.metadata().at("max_tokens"), "253");
  EXPECT_TRUE(Complete(Prompt("abc", 252)).ok());
}

TEST_F(ErrorsTest, AHugePromptIsRefusedWithoutTokenisingIt) {
  const v1::CompleteRequest request = Prompt(std::string(3 << 20, 'x'));
  ExpectError(request, grpc::INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED", "prompt");
}

TEST_F(ErrorsTest, StreamsFailAsUnaryCallsDo) {
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.mutable_options()->set_top_p(0);
  const auto result = StreamComplete(request);
  EXPECT_TRUE(result.events.empty());
  EXPECT_EQ(result.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(result.status).field(), "options.top_p");
}

TEST_F(ErrorsTest, ARefusedStreamHasNoHeadersSoThatClientsMayRetry) {
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.set_request_id("an-id");
  request.mutable_options()->set_top_p(0);
  const auto result = StreamComplete(request);
  EXPECT_EQ(result.initial_metadata.count("x-request-id"), 0u);
  EXPECT_EQ(result.trailing_metadata.find("x-request-id")->second, "an-id");
}

TEST_F(ErrorsTest, NonfiniteLogitsFailTheCallAndNotTheServer) {
  model_->PoisonLogits();
  const grpc::Status status = Complete(Prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(DetailsOf(status).info.reason(), "NONFINITE_LOGITS");
  WaitUntilIdle();
}

TEST_F(ErrorsTest, ADeadDeviceFailsCallsAndHealth) {
  model_->FailSteps();
  grpc::Status status = Complete(Prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(DetailsOf(status).info.reason(), "DEVICE_FAULT");
  EXPECT_FALSE(server_->CheckEngine().ok());
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("liveness");
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(health()->Check(&context, request, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Metric("sluice_engine_healthy"), 0);
  status = Complete(Prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::INTERNAL);
}

TEST_F(ErrorsTest, OutcomesAreCounted) {
  Complete(Prompt("abc"));
  Complete(Prompt("abc", 2));
  v1::CompleteRequest invalid = Prompt("abc");
  invalid.mutable_options()->set_n(17);
  Complete(invalid);
  EXPECT_EQ(Metric("sluice_requests_total", "outcome=\"stop\""), 1);
  EXPECT_EQ(Metric("sluice_requests_total", "outcome=\"length\""), 1);
  EXPECT_EQ(Metric("sluice_requests_total", "outcome=\"invalid\""), 1);
  EXPECT_EQ(Metric("sluice_requests_total", "outcome=\"error\""), 0);
  EXPECT_EQ(Metric("sluice_grpc_server_handled_total", "\"OK\""), 2);
  EXPECT_EQ(Metric("sluice_grpc_server_handled_total", "\"INVALID_ARGUMENT\""), 1);
}

class NoTokenizerTest : public ServerTest {
 protected:
  NoTokenizerTest() {
    Start(TestOptions(), [](ModelHost* host) { host->tokenizer = nullptr; });
  }
};

TEST_F(NoTokenizerTest, TextIsAFailedPrecondition) {
  grpc::Status status = Complete(Prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(DetailsOf(status).info.reason(), "NO_TOKENIZER");
  v1::CompleteRequest request;
  request.mutable_prompt_ids()->add_ids(1);
  request.mutable_options()->add_stop("x");
  EXPECT_EQ(Complete(request).error_code(), grpc::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace sluice
