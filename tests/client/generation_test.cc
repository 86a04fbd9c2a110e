#include "client/cpp/generation.h"

#include <gtest/gtest.h>

namespace sluice::client {
namespace {

v1::Delta Delta(uint32_t index, const std::string& text, std::vector<uint32_t> ids = {}) {
  v1::Delta delta;
  delta.set_index(index);
  delta.set_text(text);
  for (uint32_t id : ids) {
    delta.add_token_ids(id);
    delta.add_logprobs()->mutable_chosen()->set_token_id(id);
  }
  return delta;
}

TEST(GenerationBuilder, JoinsDeltasOfEachChoice) {
  GenerationBuilder builder;
  v1::Started started;
  started.set_model("m");
  started.set_seed(9);
  builder.Add(started);
  builder.Add(Delta(1, "b", {4}));
  builder.Add(Delta(0, "a", {1, 2}));
  builder.Add(Delta(1, "B", {5}));
  builder.Add(Delta(0, "", {3}));
  v1::ChoiceFinished finished;
  finished.set_index(1);
  finished.set_finish_reason(v1::FINISH_REASON_STOP_SEQUENCE);
  finished.set_stop_string("END");
  builder.Add(finished);
  finished.set_index(0);
  finished.set_finish_reason(v1::FINISH_REASON_STOP);
  finished.set_stop_token_id(2);
  builder.Add(finished);
  v1::Completed completed;
  completed.mutable_usage()->set_completion_tokens(5);
  completed.mutable_timings()->set_ttft_ms(7);
  builder.Add(completed);

  const Generation generation = std::move(builder).Take();
  EXPECT_EQ(generation.started.model(), "m");
  EXPECT_EQ(generation.started.seed(), 9u);
  ASSERT_EQ(generation.choices.size(), 2u);
  const v1::Choice& first = generation.choices[0];
  const v1::Choice& second = generation.choices[1];
  EXPECT_EQ(first.index(), 0u);
  EXPECT_EQ(first.text(), "a");
  EXPECT_EQ(std::vector<uint32_t>(first.token_ids().begin(), first.token_ids().end()),
            (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(first.logprobs_size(), 3);
  EXPECT_EQ(first.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(first.stop_token_id(), 2u);
  EXPECT_EQ(second.index(), 1u);
  EXPECT_EQ(second.text(), "bB");
  EXPECT_EQ(second.logprobs(1).chosen().token_id(), 5u);
  EXPECT_EQ(second.stop_string(), "END");
  EXPECT_EQ(generation.usage.completion_tokens(), 5u);
  EXPECT_EQ(generation.timings.ttft_ms(), 7);
}

TEST(GenerationBuilder, KeepsPromptLogprobsInOrder) {
  GenerationBuilder builder;
  for (uint32_t id : {1, 2, 3}) {
    v1::Delta delta;
    delta.add_prompt_logprobs()->mutable_chosen()->set_token_id(id);
    builder.Add(delta);
  }
  const Generation generation = std::move(builder).Take();
  ASSERT_EQ(generation.prompt_logprobs.size(), 3u);
  EXPECT_EQ(generation.prompt_logprobs[2].chosen().token_id(), 3u);
}

TEST(GenerationBuilder, JoinsACharacterThatArrivesInPieces) {
  GenerationBuilder builder;
  builder.Add(Delta(0, "\xE4\xB8"));
  builder.Add(Delta(0, "\x96"));
  EXPECT_EQ(std::move(builder).Take().choices[0].text(), "世");
}

template <class Response>
Response Unary() {
  Response response;
  response.set_request_id("r");
  response.set_server_request_id("s");
  response.set_model("m");
  response.mutable_create_time()->set_seconds(11);
  response.set_seed(7);
  response.add_choices()->set_text("t");
  response.add_prompt_logprobs()->set_rank(4);
  response.mutable_usage()->set_prompt_tokens(3);
  response.mutable_usage()->set_cached_tokens(1);
  response.mutable_timings()->set_decode_ms(2);
  (*response.mutable_metadata())["k"] = "v";
  return response;
}

void ExpectSame(const Generation& generation) {
  EXPECT_EQ(generation.started.request_id(), "r");
  EXPECT_EQ(generation.started.server_request_id(), "s");
  EXPECT_EQ(generation.started.model(), "m");
  EXPECT_EQ(generation.started.create_time().seconds(), 11);
  EXPECT_EQ(generation.started.seed(), 7u);
  EXPECT_EQ(generation.started.prompt_tokens(), 3u);
  EXPECT_EQ(generation.started.cached_tokens(), 1u);
  EXPECT_EQ(generation.started.metadata().at("k"), "v");
  EXPECT_EQ(generation.choices.at(0).text(), "t");
  EXPECT_EQ(generation.prompt_logprobs.at(0).rank(), 4u);
  EXPECT_EQ(generation.usage.prompt_tokens(), 3u);
  EXPECT_EQ(generation.timings.decode_ms(), 2);
}

TEST(FromResponse, LosesNothingOfAUnaryAnswer) {
  ExpectSame(FromResponse(Unary<v1::CompleteResponse>()));
  ExpectSame(FromResponse(Unary<v1::ChatResponse>()));
}

}  // namespace
}  // namespace sluice::client
