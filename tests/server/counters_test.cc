// What each counter counts, and what it does not: choices, recomputation, tokens that no usage has.
#include <gtest/gtest.h>

#include <string>

#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

class CountersTest : public ServerTest {
 protected:
  // Ends of calls are counted by the thread that delivers them.
  void WaitForCalls(int count) {
    WaitUntilIdle();
    WaitFor("the calls to be counted", [&] { return Metric("sluice_e2e_latency_seconds_count") == count; });
  }
};

TEST_F(CountersTest, PromptTokensCountPerChoiceButOnceInUsage) {
  Start();
  v1::CompleteRequest request = Prompt("prompt");  // the begin token and six bytes
  request.mutable_options()->set_n(3);
  const v1::Generated response = CompleteOk(request);
  WaitForCalls(1);
  EXPECT_EQ(response.usage().prompt_tokens(), 7u);
  EXPECT_EQ(Metric("sluice_prompt_tokens_total"), 3 * 7);
  EXPECT_EQ(Metric("sluice_request_prompt_tokens_sum"), 7);
  EXPECT_EQ(Metric("sluice_request_prompt_tokens_count"), 1);
}

TEST_F(CountersTest, GeneratedTokensAreThoseOfAllChoicesWithTheirEnds) {
  Start();
  v1::CompleteRequest request = Prompt("prompt");
  request.mutable_options()->set_n(3);
  const v1::Generated response = CompleteOk(request);
  WaitForCalls(1);
  EXPECT_EQ(response.usage().completion_tokens(), 3u * 6) << "hello and its end";
  EXPECT_EQ(Metric("sluice_generation_tokens_total"), 3 * 6);
  EXPECT_EQ(Metric("sluice_request_generation_tokens_sum"), 3 * 6);
}

TEST_F(CountersTest, EveryCallCountsOnceRefusedOrWithManyChoices) {
  Start();
  v1::CompleteRequest request = Prompt("prompt");
  request.mutable_options()->set_n(3);
  CompleteOk(request);
  request.mutable_options()->set_top_p(7);
  EXPECT_FALSE(Complete(request).ok());
  WaitForCalls(1);
  EXPECT_EQ(Metric("sluice_requests_total", "\"stop\""), 1);
  EXPECT_EQ(Metric("sluice_requests_total", "\"invalid\""), 1);
  EXPECT_GE(Metric("sluice_grpc_server_handled_total", "\"OK\""), 2) << "of all services: the load was asked for too";
  EXPECT_EQ(Metric("sluice_grpc_server_handled_total", "\"INVALID_ARGUMENT\""), 1);
}

TEST_F(CountersTest, TokensBehindAStopStringAreDrawnAndInNoUsage) {
  Start();
  model_->SetScript(std::string(200, 'x') + "stop" + std::string(30, 'y'));
  v1::CompleteRequest request = Prompt("prompt", 240);
  request.mutable_options()->add_stop("stop");
  const v1::Generated response = CompleteOk(request);
  WaitForCalls(1);
  EXPECT_EQ(response.usage().completion_tokens(), 204u);
  EXPECT_GE(Metric("sluice_generation_tokens_total"), 204);
  EXPECT_EQ(Metric("sluice_request_generation_tokens_sum"), 204);
}

TEST_F(CountersTest, RecomputationCountsOnlyInBatchTokens) {
  ServerOptions options = TestOptions();
  options.model.prefix_cache = false;  // choices that say the same would have their blocks in common and fit
  Start(options, [](ModelHost* host) { host->engine.num_blocks = 16; });
  // Answers of a letter, so that more are admitted than the pool can carry when they become long.
  model_->SetScript("x");
  for (int i = 0; i < 20; ++i) CompleteOk(Prompt("p", 100));
  WaitForCalls(20);
  EXPECT_EQ(Metric("sluice_preemptions_total"), 0);
  const double prompt_tokens = Metric("sluice_prompt_tokens_total");
  const double generation_tokens = Metric("sluice_generation_tokens_total");
  const double rows = Metric("sluice_batch_tokens_sum");
  model_->SetScript(std::string(99, 'x'));
  v1::CompleteRequest request = Prompt("prompt", 100);
  request.mutable_options()->set_n(6);
  const v1::Generated response = CompleteOk(request);
  WaitForCalls(21);
  EXPECT_GT(Metric("sluice_preemptions_total"), 0);
  EXPECT_EQ(response.usage().completion_tokens(), 6u * 100);
  EXPECT_EQ(Metric("sluice_prompt_tokens_total") - prompt_tokens, 6 * 7);
  EXPECT_EQ(Metric("sluice_generation_tokens_total") - generation_tokens, 6 * 100);
  EXPECT_GT(Metric("sluice_batch_tokens_sum") - rows, 6 * (7 + 99));
}

// A prompt of 65 tokens, the begin token and 64 bytes: four blocks of 16 and the last token, which is always computed.
TEST_F(CountersTest, APrefixThatIsFoundCountsInTheUsageAndInItsTotals) {
  Start();
  const std::string prompt(64, 'p');
  EXPECT_EQ(CompleteOk(Prompt(prompt)).usage().cached_tokens(), 0u);
  WaitForCalls(1);
  const double rows = Metric("sluice_batch_tokens_sum");
  const v1::Usage usage = CompleteOk(Prompt(prompt)).usage();
  EXPECT_EQ(usage.cached_tokens(), 64u);
  EXPECT_EQ(usage.prompt_tokens(), 65u);
  WaitForCalls(2);
  EXPECT_EQ(Metric("sluice_batch_tokens_sum") - rows, 1 + 5) << "the last prompt token and hello";
  EXPECT_EQ(Metric("sluice_prompt_tokens_total"), 2 * 65);
  EXPECT_EQ(Metric("sluice_prompt_tokens_cached_total"), 64);
  EXPECT_EQ(Metric("sluice_prefix_cache_queries_total"), 2 * 65);
  EXPECT_EQ(Metric("sluice_prefix_cache_hits_total"), 64);
  // The first call's four blocks; both partial ones went back.
  EXPECT_EQ(Metric("sluice_kv_blocks", "\"cached\""), 4);
  EXPECT_EQ(Metric("sluice_kv_blocks", "\"live\""), 0);
  EXPECT_EQ(Metric("sluice_kv_cache_usage_ratio"), 0);
  const auto stream = StreamComplete(StreamPrompt(prompt));
  EXPECT_EQ(stream.events.front().started().cached_tokens(), 64u);
  EXPECT_EQ(stream.events.back().completed().usage().cached_tokens(), 64u);
}

TEST_F(CountersTest, CallsOfDifferentSaltsFindNothingOfEachOther) {
  Start();
  v1::CompleteRequest request = Prompt(std::string(64, 'p'));
  const auto cached = [&](const std::string& salt) {
    request.set_cache_salt(salt);
    return CompleteOk(request).usage().cached_tokens();
  };
  EXPECT_EQ(cached("a"), 0u);
  EXPECT_EQ(cached("b"), 0u);
  EXPECT_EQ(cached(""), 0u);
  EXPECT_EQ(cached("a"), 64u);
  EXPECT_EQ(cached("b"), 64u);
  EXPECT_EQ(cached(""), 64u);
}

TEST_F(CountersTest, WhatOneChoiceComputesForTheOthersIsNotFoundByTheCall) {
  Start();
  v1::CompleteRequest request = Prompt(std::string(64, 'p'));
  request.mutable_options()->set_n(3);
  EXPECT_EQ(CompleteOk(request).usage().cached_tokens(), 0u);
  WaitForCalls(1);
  EXPECT_EQ(Metric("sluice_prompt_tokens_cached_total"), 0);
  EXPECT_EQ(Metric("sluice_prefix_cache_queries_total"), 3 * 65);
  EXPECT_EQ(Metric("sluice_prefix_cache_hits_total"), 2 * 64);
  EXPECT_EQ(CompleteOk(request).usage().cached_tokens(), 64u);
}

TEST_F(CountersTest, TheNextTurnOfAChatFindsTheOneBefore) {
  Start();
  v1::ChatRequest request;
  const auto say = [&](v1::Role role, const std::string& text) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role(role);
    message->add_content()->set_text(text);
  };
  const auto ask = [&] {
    v1::ChatResponse response;
    grpc::ClientContext context;
    const grpc::Status status = generation()->Chat(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.generated();
  };
  say(v1::ROLE_USER, std::string(50, 'q'));
  const v1::Generated first = ask();
  EXPECT_EQ(first.usage().cached_tokens(), 0u);
  EXPECT_EQ(first.usage().prompt_tokens(), 68u);
  // "hello" follows in both; then the template has its mark where the model has drawn its end.
  say(v1::ROLE_ASSISTANT, first.choices(0).text());
  say(v1::ROLE_USER, "And?");
  const v1::Generated second = ask();
  EXPECT_EQ(second.usage().prompt_tokens(), 68u + 5 + 23);
  EXPECT_EQ(second.usage().cached_tokens(), 64u) << "the whole blocks of the 73";
}

TEST_F(CountersTest, WithoutAPrefixCacheNothingIsLookedUpOrFound) {
  ServerOptions options = TestOptions();
  options.model.prefix_cache = false;
  Start(options);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(CompleteOk(Prompt(std::string(64, 'p'))).usage().cached_tokens(), 0u);
  WaitForCalls(2);
  EXPECT_EQ(Metric("sluice_prompt_tokens_total"), 2 * 65);
  EXPECT_EQ(Metric("sluice_prompt_tokens_cached_total"), 0);
  EXPECT_EQ(Metric("sluice_prefix_cache_queries_total"), 0);
  EXPECT_EQ(Metric("sluice_prefix_cache_hits_total"), 0);
}

}  // namespace
}  // namespace sluice
