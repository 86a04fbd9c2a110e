// The events of a stream put together again.
#include "proto/answer.h"

#include <gtest/gtest.h>

namespace sluice {
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

TEST(Fold, JoinsDeltasOfEachChoice) {
  Answer answer;
  v1::Started started;
  started.set_model("m");
  started.set_seed(9);
  Fold(started, &answer);
  Fold(Delta(1, "b", {4}), &answer);
  Fold(Delta(0, "a", {1, 2}), &answer);
  Fold(Delta(1, "B", {5}), &answer);
  Fold(Delta(0, "", {3}), &answer);
  v1::ChoiceFinished finished;
  finished.set_index(1);
  finished.set_finish_reason(v1::FINISH_REASON_STOP_SEQUENCE);
  finished.set_stop_string("END");
  Fold(finished, &answer);
  finished.set_index(0);
  finished.set_finish_reason(v1::FINISH_REASON_STOP);
  finished.set_stop_token_id(2);
  Fold(finished, &answer);
  v1::Completed completed;
  completed.mutable_usage()->set_completion_tokens(5);
  completed.mutable_timings()->set_ttft_ms(7);
  Fold(completed, &answer);

  EXPECT_EQ(answer.model(), "m");
  EXPECT_EQ(answer.seed(), 9u);
  ASSERT_EQ(answer.choices_size(), 2);
  const v1::Choice& first = answer.choices(0);
  const v1::Choice& second = answer.choices(1);
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
  EXPECT_EQ(answer.usage().completion_tokens(), 5u);
  EXPECT_EQ(answer.timings().ttft_ms(), 7);
}

TEST(Fold, KeepsPromptLogprobsInOrder) {
  Answer answer;
  for (uint32_t id : {1, 2, 3}) {
    v1::Delta delta;
    delta.add_prompt_logprobs()->mutable_chosen()->set_token_id(id);
    Fold(delta, &answer);
  }
  ASSERT_EQ(answer.prompt_logprobs_size(), 3);
  EXPECT_EQ(answer.prompt_logprobs(2).chosen().token_id(), 3u);
}

TEST(Fold, JoinsACharacterThatArrivesInPieces) {
  Answer answer;
  Fold(Delta(0, "\xE4\xB8"), &answer);
  Fold(Delta(0, "\x96"), &answer);
  EXPECT_EQ(answer.choices(0).text(), "世");
}

TEST(Fold, TakesAChoiceOfAnyIndexForOne) {
  Answer answer;
  for (uint32_t index : {4'000'000'000u, 7u, 9u, 7u}) Fold(Delta(index, "a"), &answer);
  ASSERT_EQ(answer.choices_size(), 3);
  EXPECT_EQ(answer.choices(0).index(), 7u);
  EXPECT_EQ(answer.choices(0).text(), "aa");
  EXPECT_EQ(answer.choices(1).index(), 9u);
  EXPECT_EQ(answer.choices(2).index(), 4'000'000'000u);
}

TEST(Fold, LosesNothingOfWhatAUnaryCallSays) {
  Answer answer;
  AnswerEvent event;
  v1::Started& started = *event.mutable_started();
  started.set_request_id("r");
  started.set_server_request_id("s");
  started.set_model("m");
  started.mutable_create_time()->set_seconds(11);
  started.set_seed(7);
  started.set_prompt_tokens(3);
  started.set_cached_tokens(1);
  (*started.mutable_metadata())["k"] = "v";
  Fold(event, &answer);
  EXPECT_EQ(answer.usage().prompt_tokens(), 3u) << "before the end";
  event.mutable_delta()->set_text("t");
  event.mutable_delta()->add_prompt_logprobs()->set_rank(4);
  Fold(event, &answer);
  event.mutable_choice_finished()->set_stop_token_id(5);
  Fold(event, &answer);
  event.mutable_completed()->mutable_usage()->set_completion_tokens(6);
  event.mutable_completed()->mutable_timings()->set_decode_ms(2);
  Fold(event, &answer);
  Fold(AnswerEvent(), &answer);
  EXPECT_EQ(answer.request_id(), "r");
  EXPECT_EQ(answer.server_request_id(), "s");
  EXPECT_EQ(answer.model(), "m");
  EXPECT_EQ(answer.create_time().seconds(), 11);
  EXPECT_EQ(answer.seed(), 7u);
  EXPECT_EQ(answer.metadata().at("k"), "v");
  EXPECT_EQ(answer.choices(0).text(), "t");
  EXPECT_EQ(answer.choices(0).stop_token_id(), 5u);
  EXPECT_EQ(answer.prompt_logprobs(0).rank(), 4u);
  EXPECT_EQ(answer.usage().completion_tokens(), 6u);
  EXPECT_EQ(answer.timings().decode_ms(), 2);
}

}  // namespace
}  // namespace sluice
