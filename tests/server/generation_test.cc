// Every field of a generation request reaches what it is for, and every field of an answer says what happened.
#include <gmock/gmock.h>

#include <set>

#include "engine/base/log.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

class GenerationTest : public ServerTest {
 protected:
  GenerationTest() { Start(); }
};

TEST_F(GenerationTest, ACompletionHasTextReasonUsageAndIds) {
  const v1::Generated response = CompleteOk(Prompt("abc"));
  EXPECT_EQ(response.model(), "fake");
  EXPECT_THAT(response.server_request_id(), ::testing::MatchesRegex("req-[0-9a-f]{32}"));
  EXPECT_EQ(response.request_id(), response.server_request_id());
  EXPECT_GT(response.create_time().seconds(), 1'600'000'000);
  ASSERT_EQ(response.choices_size(), 1);
  EXPECT_EQ(response.choices(0).index(), 0u);
  EXPECT_EQ(response.choices(0).text(), "hello");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(response.choices(0).stop_token_id(), uint32_t(kEnd));
  EXPECT_EQ(response.usage().prompt_tokens(), 4u);  // with the begin token
  EXPECT_EQ(response.usage().completion_tokens(), 6u);
  EXPECT_EQ(response.usage().cached_tokens(), 0u);
  EXPECT_TRUE(response.choices(0).token_ids().empty());
  EXPECT_TRUE(response.choices(0).logprobs().empty());
  EXPECT_TRUE(response.prompt_logprobs().empty());
}

TEST_F(GenerationTest, AStreamHasItsEventsInOrder) {
  const auto result = StreamComplete(StreamPrompt("abc"));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  ASSERT_GE(result.events.size(), 4u);
  EXPECT_TRUE(result.events.front().has_started());
  EXPECT_EQ(result.events.front().started().prompt_tokens(), 4u);
  for (size_t i = 1; i + 2 < result.events.size(); ++i) EXPECT_TRUE(result.events[i].has_delta());
  EXPECT_TRUE(result.events[result.events.size() - 2].has_choice_finished());
  EXPECT_TRUE(result.events.back().has_completed());
  EXPECT_EQ(result.events.back().completed().usage().completion_tokens(), 6u);
  EXPECT_EQ(result.Text(), "hello");
}

TEST_F(GenerationTest, TimingsAddUp) {
  model_->SetStepTime(std::chrono::milliseconds(5));
  const v1::Timings timings = CompleteOk(Prompt("abc")).timings();
  EXPECT_GE(timings.queue_ms(), 0);
  EXPECT_GE(timings.prefill_ms(), 5);
  EXPECT_GE(timings.decode_ms(), 5 * 5);
  EXPECT_GE(timings.ttft_ms(), timings.queue_ms() + timings.prefill_ms());
}

TEST_F(GenerationTest, SamplingFieldsReachTheEngine) {
  v1::CompleteRequest request = Prompt("abc", 7);
  v1::GenerateOptions* options = request.mutable_options();
  options->set_min_tokens(2);
  options->set_temperature(0.5);
  options->set_top_p(0.75);
  options->set_top_k(11);
  options->set_min_p(0.125);
  options->set_repetition_penalty(1.25);
  options->set_presence_penalty(0.5);
  options->set_frequency_penalty(-0.5);
  options->set_seed(99);
  options->set_ignore_eos(true);
  options->add_stop_token_ids(200);
  for (uint32_t id : {9, 7, 9}) options->add_allowed_token_ids(id);
  (*options->mutable_logit_bias())[65] = -3;
  (*options->mutable_logit_bias())[66] = 4;
  options->set_logprobs(2);
  options->set_prompt_logprobs(1);
  CompleteOk(request);
  const FakeModel::Seen seen = model_->last_seen();
  EXPECT_THAT(seen.prompt, ElementsAre(kStart, 'a', 'b', 'c'));
  EXPECT_EQ(seen.params.max_tokens, 7);
  EXPECT_EQ(seen.params.min_tokens, 2);
  EXPECT_EQ(seen.params.temperature, 0.5f);
  EXPECT_EQ(seen.params.top_p, 0.75f);
  EXPECT_EQ(seen.params.top_k, 11);
  EXPECT_EQ(seen.params.min_p, 0.125f);
  EXPECT_EQ(seen.params.repetition_penalty, 1.25f);
  EXPECT_EQ(seen.params.presence_penalty, 0.5f);
  EXPECT_EQ(seen.params.frequency_penalty, -0.5f);
  EXPECT_EQ(seen.params.seed, 99u);
  EXPECT_TRUE(seen.params.ignore_eos);
  EXPECT_THAT(seen.params.stop_token_ids, ElementsAre(200));
  EXPECT_THAT(seen.params.allowed_token_ids, ElementsAre(9, 7, 9));
  ASSERT_EQ(seen.params.logit_bias.size(), 2u);
  EXPECT_EQ(seen.params.logit_bias[0].token, 65);
  EXPECT_EQ(seen.params.logit_bias[0].bias, -3);
  EXPECT_EQ(seen.params.logit_bias[1].token, 66);
  EXPECT_EQ(seen.params.logit_bias[1].bias, 4);
  EXPECT_EQ(seen.params.logprobs, 2);
  EXPECT_EQ(seen.params.prompt_logprobs, 1);
}

TEST_F(GenerationTest, ZeroIsNotUnset) {
  v1::CompleteRequest request = Prompt("abc", 3);
  request.mutable_options()->set_temperature(0);
  request.mutable_options()->set_seed(0);
  request.mutable_options()->set_logprobs(0);
  const v1::Generated response = CompleteOk(request);
  EXPECT_EQ(model_->last_seen().params.temperature, 0);
  EXPECT_EQ(model_->last_seen().params.seed, 0u);
  EXPECT_EQ(model_->last_seen().params.logprobs, 0);
  EXPECT_EQ(response.seed(), 0u);
  ASSERT_EQ(response.choices(0).logprobs_size(), 3);
  EXPECT_EQ(response.choices(0).logprobs(0).top_size(), 0);
}

TEST_F(GenerationTest, UnsetFieldsAreTheDocumentedDefaults) {
  CompleteOk(Prompt("abc"));
  const SamplingParams params = model_->last_seen().params;
  EXPECT_EQ(params.temperature, 1);
  EXPECT_EQ(params.top_p, 1);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.min_p, 0);
  EXPECT_EQ(params.repetition_penalty, 1);
  EXPECT_EQ(params.presence_penalty, 0);
  EXPECT_EQ(params.frequency_penalty, 0);
  EXPECT_EQ(params.min_tokens, 0);
  EXPECT_FALSE(params.ignore_eos);
  EXPECT_TRUE(params.allowed_token_ids.empty());
  EXPECT_FALSE(params.logprobs.has_value());
  EXPECT_FALSE(params.prompt_logprobs.has_value());
  EXPECT_EQ(params.max_tokens, 256 - 4);  // what the context has left
}

TEST_F(GenerationTest, AnUnsetSeedIsRandomAndTold) {
  const uint64_t first = CompleteOk(Prompt("abc")).seed();
  EXPECT_EQ(model_->last_seen().params.seed, first);
  EXPECT_NE(CompleteOk(Prompt("abc")).seed(), first);
  const auto stream = StreamComplete(StreamPrompt("abc"));
  EXPECT_EQ(stream.events.front().started().seed(), model_->last_seen().params.seed);
}

TEST_F(GenerationTest, MinusOneTurnsTopKOff) {
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_top_k(-1);
  CompleteOk(request);
  EXPECT_EQ(model_->last_seen().params.top_k, 0);
}

TEST_F(GenerationTest, MaxTokensEndsWithLength) {
  const v1::Generated response = CompleteOk(Prompt("abc", 3));
  EXPECT_EQ(response.choices(0).text(), "hel");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(response.choices(0).matched_stop_case(), v1::Choice::MATCHED_STOP_NOT_SET);
  EXPECT_EQ(response.usage().completion_tokens(), 3u);
}

TEST_F(GenerationTest, OnlyAllowedTokensAreGenerated) {
  v1::CompleteRequest request = Prompt("abc", 8);
  for (uint32_t id : {'o', 'l', 'x', 'l'}) request.mutable_options()->add_allowed_token_ids(id);
  auto response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).text(), "llllolll") << "the end token is not allowed either";
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  request.mutable_options()->add_allowed_token_ids(kEnd);
  response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).text(), "llllo");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  // What else a request says still holds: biases, choices, stop strings, min_tokens.
  (*request.mutable_options()->mutable_logit_bias())['h'] = 100;
  request.mutable_options()->set_n(2);
  request.mutable_options()->set_min_tokens(7);
  request.mutable_options()->add_stop("lo");
  response = CompleteOk(request);
  ASSERT_EQ(response.choices_size(), 2);
  for (const v1::Choice& choice : response.choices()) {
    EXPECT_EQ(choice.text(), "llllolll") << "its stop string and its end token came too early to count";
    EXPECT_EQ(choice.finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
}

TEST_F(GenerationTest, MinTokensHoldsBackTheEndToken) {
  v1::CompleteRequest request = Prompt("abc", 20);
  request.mutable_options()->set_min_tokens(8);
  const v1::Generated response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).text(), "hello~hello");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_STOP);
}

TEST_F(GenerationTest, IgnoreEosGoesOnToTheLimit) {
  v1::CompleteRequest request = Prompt("abc", 8);
  request.mutable_options()->set_ignore_eos(true);
  const v1::Generated response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).text(), "hellohe");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(GenerationTest, AStopStringOverSeveralTokensEndsTheTextBeforeIt) {
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->add_stop("zzz");
  request.mutable_options()->add_stop("llo");
  const v1::Generated response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).text(), "he");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_STOP_SEQUENCE);
  EXPECT_EQ(response.choices(0).stop_string(), "llo");
  EXPECT_EQ(response.usage().completion_tokens(), 5u);
}

TEST_F(GenerationTest, IncludeStopTextKeepsTheStopString) {
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->add_stop("ll");
  request.mutable_options()->set_include_stop_text(true);
  EXPECT_EQ(CompleteOk(request).choices(0).text(), "hell");
}

TEST_F(GenerationTest, AStopTokenEndsTheChoiceAndIsNotText) {
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->add_stop_token_ids('l');
  v1::Generated response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).text(), "he");
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_STOP_SEQUENCE);
  EXPECT_EQ(response.choices(0).stop_token_id(), uint32_t('l'));
  request.mutable_options()->set_include_stop_text(true);
  EXPECT_EQ(CompleteOk(request).choices(0).text(), "hel");
}

TEST_F(GenerationTest, ASpecialStopTokenIsTextWhenAskedFor) {
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_include_stop_text(true);
  EXPECT_EQ(CompleteOk(request).choices(0).text(), "hello") << "an end token of the model is no stop token";
  request.mutable_options()->set_ignore_eos(true);
  request.mutable_options()->add_stop_token_ids(uint32_t(kEnd));
  request.mutable_options()->add_stop("lonely");  // "lo" is held back until the end
  EXPECT_EQ(CompleteOk(request).choices(0).text(), "hello<|end|>");
  request.mutable_options()->set_include_stop_text(false);
  EXPECT_EQ(CompleteOk(request).choices(0).text(), "hello");
}

TEST_F(GenerationTest, TokenIdsComeWhenAskedFor) {
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_return_token_ids(true);
  EXPECT_THAT(CompleteOk(request).choices(0).token_ids(), ElementsAre('h', 'e', 'l', 'l', 'o', kEnd));
}

TEST_F(GenerationTest, LogprobsOfOutputAndPromptComeWhenAskedFor) {
  v1::CompleteRequest request = Prompt("abc", 2);
  request.mutable_options()->set_logprobs(2);
  request.mutable_options()->set_prompt_logprobs(1);
  const v1::Generated response = CompleteOk(request);
  ASSERT_EQ(response.choices(0).logprobs_size(), 2);
  const v1::PositionLogprobs& first = response.choices(0).logprobs(0);
  EXPECT_EQ(first.chosen().token_id(), uint32_t('h'));
  EXPECT_EQ(first.chosen().logprob(), -0.5f);
  EXPECT_EQ(first.chosen().token_bytes(), "h");
  EXPECT_EQ(first.rank(), 3u);
  ASSERT_EQ(first.top_size(), 2);
  EXPECT_EQ(first.top(1).token_id(), 1u);
  EXPECT_EQ(first.top(1).logprob(), -2.0f);
  ASSERT_EQ(response.prompt_logprobs_size(), 3);  // of the tokens after the begin token
  EXPECT_EQ(response.prompt_logprobs(0).chosen().token_id(), uint32_t('a'));
  EXPECT_EQ(response.prompt_logprobs(2).chosen().token_id(), uint32_t('c'));
  EXPECT_EQ(response.prompt_logprobs(0).top_size(), 1);
}

TEST_F(GenerationTest, PromptIdsAreUsedAsTheyAre) {
  v1::CompleteRequest request;
  request.mutable_prompt_ids()->add_ids('x');
  request.mutable_prompt_ids()->add_ids(kMark);
  const v1::Generated response = CompleteOk(request);
  EXPECT_THAT(model_->last_seen().prompt, ElementsAre('x', kMark));
  EXPECT_EQ(response.usage().prompt_tokens(), 2u);
}

TEST_F(GenerationTest, ParseSpecialDecidesWhetherControlTokensAreRecognised) {
  v1::CompleteRequest request = Prompt("a<|mark|>");
  CompleteOk(request);
  EXPECT_THAT(model_->last_seen().prompt, ElementsAre(kStart, 'a', kMark));
  request.set_parse_special(false);
  CompleteOk(request);
  EXPECT_EQ(model_->last_seen().prompt.size(), 2 + std::string("<|mark|>").size());
}

TEST_F(GenerationTest, AddSpecialTokensDecidesAboutTheBeginToken) {
  v1::CompleteRequest request = Prompt("ab");
  request.set_add_special_tokens(false);
  CompleteOk(request);
  EXPECT_THAT(model_->last_seen().prompt, ElementsAre('a', 'b'));
}

TEST_F(GenerationTest, ChoicesHaveTheirOwnSeedsTextsAndEnds) {
  model_->SetScript("n#");
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_n(3);
  request.mutable_options()->set_seed(5);
  request.mutable_options()->set_prompt_logprobs(0);
  const v1::Generated response = CompleteOk(request);
  ASSERT_EQ(response.choices_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(response.choices(i).index(), uint32_t(i));
    EXPECT_EQ(response.choices(i).text(), "n" + std::to_string(5 + i));
    EXPECT_EQ(response.choices(i).finish_reason(), v1::FINISH_REASON_STOP);
  }
  EXPECT_EQ(response.usage().prompt_tokens(), 4u);
  EXPECT_EQ(response.usage().completion_tokens(), 9u);
  EXPECT_EQ(response.prompt_logprobs_size(), 3);  // once, not per choice
  ASSERT_EQ(model_->seen().size(), 3u);
  for (const FakeModel::Seen& seen : model_->seen()) EXPECT_THAT(seen.prompt, ElementsAre(kStart, 'a', 'b', 'c'));
}

TEST_F(GenerationTest, AStreamOfSeveralChoicesEndsEachOnceAndThenItself) {
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.mutable_options()->set_n(4);
  const auto result = StreamComplete(request);
  ASSERT_TRUE(result.status.ok());
  std::multiset<uint32_t> finished;
  for (const auto& event : result.events) {
    if (event.has_choice_finished()) finished.insert(event.choice_finished().index());
    // Nothing comes for a choice that has ended.
    EXPECT_TRUE(!event.has_delta() || !finished.contains(event.delta().index()));
  }
  EXPECT_THAT(finished, ElementsAre(0, 1, 2, 3));
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(result.Text(i), "hello");
  EXPECT_TRUE(result.events.back().has_completed());
}

TEST_F(GenerationTest, DeltasNeverSplitACharacterAndAddUpToTheUnaryText) {
  model_->SetScript("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z");  // é, €, 😀
  const auto result = StreamComplete(StreamPrompt("abc"));
  for (const auto& event : result.events) {
    if (event.has_delta()) {
      EXPECT_EQ(event.delta().text().find("\xEF\xBF\xBD"), std::string::npos);
      EXPECT_TRUE(event.delta().text().empty() || uint8_t(event.delta().text()[0]) < 0x80 ||
                  uint8_t(event.delta().text()[0]) >= 0xC0);
    }
  }
  EXPECT_EQ(result.Text(), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z");
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), result.Text());
}

TEST_F(GenerationTest, APromptThatEndsInsideACharacterIsContinued) {
  model_->SetScript("\x98\x80!");
  v1::StreamCompleteRequest request;
  for (uint8_t byte : {0xF0, 0x9F}) request.mutable_prompt_ids()->add_ids(byte);
  EXPECT_EQ(StreamComplete(request).Text(), "\xF0\x9F\x98\x80!");
}

TEST_F(GenerationTest, TheModelCanBeNamedByAnyOfItsNames) {
  for (const char* name : {"", "fake", "alias"}) {
    v1::CompleteRequest request = Prompt("abc");
    request.set_model(name);
    EXPECT_EQ(CompleteOk(request).model(), "fake");
  }
}

TEST_F(GenerationTest, RequestIdAndMetadataComeBack) {
  v1::CompleteRequest request = Prompt("abc");
  request.set_request_id("my-id");
  request.set_user("someone");
  (*request.mutable_metadata())["colour"] = "red";
  const v1::Generated response = CompleteOk(request);
  EXPECT_EQ(response.request_id(), "my-id");
  EXPECT_NE(response.server_request_id(), "my-id");
  EXPECT_EQ(response.metadata().at("colour"), "red");

  v1::StreamCompleteRequest stream_request = StreamPrompt("abc");
  stream_request.set_request_id("my-id");
  (*stream_request.mutable_metadata())["colour"] = "blue";
  const auto stream = StreamComplete(stream_request);
  EXPECT_EQ(stream.events.front().started().request_id(), "my-id");
  EXPECT_EQ(stream.events.front().started().metadata().at("colour"), "blue");
  ASSERT_EQ(stream.initial_metadata.count("x-request-id"), 1u);
  EXPECT_EQ(stream.initial_metadata.find("x-request-id")->second, "my-id");
  ASSERT_EQ(stream.initial_metadata.count("x-server-request-id"), 1u);
  EXPECT_EQ(stream.initial_metadata.find("x-server-request-id")->second,
            stream.events.front().started().server_request_id());
}

TEST_F(GenerationTest, TheXRequestIdHeaderIsTakenAndEchoed) {
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "from-a-proxy");
  const auto stream = StreamComplete(StreamPrompt("abc"), &context);
  EXPECT_EQ(stream.events.front().started().request_id(), "from-a-proxy");
  EXPECT_EQ(stream.initial_metadata.find("x-request-id")->second, "from-a-proxy");
}

TEST_F(GenerationTest, AnUnusableXRequestIdHeaderIsReplaced) {
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "with a space");
  const auto stream = StreamComplete(StreamPrompt("abc"), &context);
  EXPECT_EQ(stream.events.front().started().request_id(), stream.events.front().started().server_request_id());
}

TEST_F(GenerationTest, TheUserIsNamedInTheDebugLog) {
  SetLogLevel(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  v1::CompleteRequest request = Prompt("a secret");
  request.set_user("someone");
  request.set_request_id("logged");
  CompleteOk(request);
  const std::string log = ::testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kInfo);
  EXPECT_NE(log.find("request_id 'logged', user 'someone': OK"), std::string::npos) << log;
  EXPECT_EQ(log.find("secret"), std::string::npos) << log;
}

class OtherModelTest : public ServerTest {};

TEST_F(OtherModelTest, TheModelsDefaultsHoldWhereTheRequestSaysNothing) {
  Start(TestOptions(), [](ModelHost* host) {
    host->defaults = {.temperature = 0.25f, .top_p = 0.5f, .top_k = 7, .min_p = 0.125f, .repetition_penalty = 1.5f};
  });
  CompleteOk(Prompt("abc"));
  SamplingParams params = model_->last_seen().params;
  EXPECT_EQ(params.temperature, 0.25f);
  EXPECT_EQ(params.top_p, 0.5f);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.min_p, 0.125f);
  EXPECT_EQ(params.repetition_penalty, 1.5f);
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_temperature(0.75);
  request.mutable_options()->set_top_k(0);
  CompleteOk(request);
  params = model_->last_seen().params;
  EXPECT_EQ(params.temperature, 0.75f);
  EXPECT_EQ(params.top_k, 0);
}

TEST_F(OtherModelTest, WithoutATokenizerIdsGoInAndComeOut) {
  Start(TestOptions(), [](ModelHost* host) { host->tokenizer = nullptr; });
  v1::CompleteRequest request;
  request.mutable_prompt_ids()->add_ids('x');
  const v1::Generated response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).text(), "");
  EXPECT_THAT(response.choices(0).token_ids(), ElementsAre('h', 'e', 'l', 'l', 'o', kEnd));
}

TEST_F(OtherModelTest, UnsetMaxTokensFitsAPoolSmallerThanTheContext) {
  Start(TestOptions(), [](ModelHost* host) { host->engine.num_blocks = 4; });
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  const v1::Generated response = CompleteOk(request);
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(response.usage().prompt_tokens() + response.usage().completion_tokens(), 64u);
}

TEST_F(OtherModelTest, MinusOneLogprobsAreTheWholeVocabularyWhereAllowed) {
  ServerOptions options = TestOptions();
  options.limits.max_logprobs = -1;
  Start(options);
  v1::CompleteRequest request = Prompt("abc", 1);
  request.mutable_options()->set_logprobs(-1);
  EXPECT_EQ(CompleteOk(request).choices(0).logprobs(0).top_size(), kFakeVocabSize);
}

}  // namespace
}  // namespace sluice
