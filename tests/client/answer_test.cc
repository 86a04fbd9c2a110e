#include "client/cli/answer.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace sluice::cli {
namespace {

Answer OneChoice() {
  Answer answer;
  answer.set_model("m");
  answer.set_request_id("r");
  answer.set_seed(18446744073709551615u);
  v1::Choice& choice = *answer.add_choices();
  choice.set_text("a \"quoted\" 世");
  choice.add_token_ids(3);
  choice.add_token_ids(4);
  choice.set_finish_reason(v1::FINISH_REASON_LENGTH);
  answer.mutable_usage()->set_prompt_tokens(12);
  answer.mutable_usage()->set_completion_tokens(2);
  answer.mutable_usage()->set_cached_tokens(4);
  answer.mutable_timings()->set_queue_ms(1);
  answer.mutable_timings()->set_prefill_ms(4);
  answer.mutable_timings()->set_decode_ms(10);
  answer.mutable_timings()->set_ttft_ms(6);
  return answer;
}

TEST(ToJson, HasThePinnedObject) {
  const auto json = nlohmann::json::parse(ToJson(OneChoice()));
  EXPECT_EQ(json["text"], "a \"quoted\" 世");
  EXPECT_EQ(json["token_ids"], (std::vector<uint32_t>{3, 4}));
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["usage"],
            nlohmann::json::parse(R"({"prompt_tokens": 12, "completion_tokens": 2, "cached_tokens": 4})"));
  EXPECT_EQ(json["timings"],
            nlohmann::json::parse(R"({"queue_ms": 1.0, "prefill_ms": 4.0, "decode_ms": 10.0, "ttft_ms": 6.0})"));
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["request_id"], "r");
  EXPECT_EQ(json["seed"], "18446744073709551615") << "what jq and JavaScript would round";
  for (const char* absent : {"choices", "logprobs", "prompt_logprobs", "stop_string", "stop_token_id"}) {
    EXPECT_FALSE(json.contains(absent)) << absent;
  }
}

TEST(ToJson, SeveralChoicesStandInAList) {
  Answer answer = OneChoice();
  v1::Choice& second = *answer.add_choices();
  second.set_text("b");
  second.set_finish_reason(v1::FINISH_REASON_STOP_SEQUENCE);
  second.set_stop_string("END");
  const auto json = nlohmann::json::parse(ToJson(answer));
  EXPECT_FALSE(json.contains("text"));
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][1]["text"], "b");
  EXPECT_EQ(json["choices"][1]["finish_reason"], "stop_sequence");
  EXPECT_EQ(json["choices"][1]["stop_string"], "END");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 12);
}

TEST(ToJson, AddsLogprobsWhereThereAre) {
  Answer answer = OneChoice();
  v1::PositionLogprobs position;
  position.mutable_chosen()->set_token_id(3);
  position.mutable_chosen()->set_logprob(-0.5);
  position.set_rank(2);
  position.add_top()->set_token_id(9);
  position.mutable_top(0)->set_logprob(-0.25);
  *answer.mutable_choices(0)->add_logprobs() = position;
  *answer.add_prompt_logprobs() = position;
  const auto json = nlohmann::json::parse(ToJson(answer));
  const auto expected = nlohmann::json::parse(
      R"([{"token_id": 3, "logprob": -0.5, "rank": 2, "top": [{"token_id": 9, "logprob": -0.25}]}])");
  EXPECT_EQ(json["logprobs"], expected);
  EXPECT_EQ(json["prompt_logprobs"], expected);
}

TEST(ToJson, SurvivesBrokenText) {
  Answer answer = OneChoice();
  answer.mutable_choices(0)->set_text("\xFF");
  EXPECT_EQ(nlohmann::json::parse(ToJson(answer))["text"], "\uFFFD");
}

TEST(FinishReasonName, IsTheEnumsInLowerCase) {
  EXPECT_EQ(FinishReasonName(v1::FINISH_REASON_STOP), "stop");
  EXPECT_EQ(FinishReasonName(v1::FINISH_REASON_STOP_SEQUENCE), "stop_sequence");
  EXPECT_EQ(FinishReasonName(v1::FINISH_REASON_LENGTH), "length");
  EXPECT_EQ(FinishReasonName(v1::FINISH_REASON_CANCELLED), "cancelled");
}

TEST(StatsLine, GivesTokensRatesAndTimes) {
  // 8 of 12 prompt tokens were computed in 4 ms; the second token came 10 ms after the first.
  EXPECT_EQ(StatsLine(OneChoice()),
            "12 prompt tokens at 2000.0 tok/s, TTFT 6 ms, 2 tokens at 100.0 tok/s, 16 ms in all");
}

TEST(StatsLine, LeavesOutRatesThatAreNotKnown) {
  Answer answer = OneChoice();
  answer.mutable_usage()->set_completion_tokens(1);
  answer.mutable_usage()->set_cached_tokens(12);
  answer.mutable_timings()->set_decode_ms(0);
  EXPECT_EQ(StatsLine(answer), "12 prompt tokens, TTFT 6 ms, 1 tokens, 6 ms in all");
}

v1::GenerateOptions Parse(const std::vector<std::string>& arguments) {
  GenerateFlags flags;
  CLI::App app;
  flags.AddTo(app);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  app.parse(std::move(reversed));
  v1::GenerateOptions options;
  flags.Fill(&options);
  return options;
}

TEST(GenerateFlags, SetNothingThatWasNotGiven) {
  v1::GenerateOptions options = Parse({"--json"});
  EXPECT_TRUE(options.return_token_ids());
  options.clear_return_token_ids();
  EXPECT_EQ(options.ByteSizeLong(), 0u);
  EXPECT_EQ(Parse({}).ByteSizeLong(), 0u);
}

TEST(GenerateFlags, ZeroIsAValue) {
  const v1::GenerateOptions options = Parse({"--temperature", "0", "--seed", "0", "--logprobs", "0", "--min-p", "0"});
  EXPECT_TRUE(options.has_temperature() && options.has_seed() && options.has_logprobs() && options.has_min_p());
}

TEST(GenerateFlags, EachReachesItsField) {
  const v1::GenerateOptions options = Parse({"--max-tokens",
                                             "5",
                                             "--min-tokens",
                                             "2",
                                             "--temperature",
                                             "0.5",
                                             "--top-p",
                                             "0.25",
                                             "--top-k",
                                             "-1",
                                             "--min-p",
                                             "0.125",
                                             "--repetition-penalty",
                                             "1.5",
                                             "--presence-penalty",
                                             "-0.5",
                                             "--frequency-penalty",
                                             "0.75",
                                             "--seed",
                                             "18446744073709551615",
                                             "-n",
                                             "3",
                                             "--stop",
                                             "a",
                                             "--stop",
                                             "b",
                                             "--stop-token-ids",
                                             "7,8",
                                             "--allowed-token-ids",
                                             "9,10",
                                             "--include-stop-text",
                                             "--ignore-eos",
                                             "--logprobs",
                                             "-1",
                                             "--prompt-logprobs",
                                             "4"});
  v1::GenerateOptions expected;
  expected.set_max_tokens(5);
  expected.set_min_tokens(2);
  expected.set_temperature(0.5);
  expected.set_top_p(0.25);
  expected.set_top_k(-1);
  expected.set_min_p(0.125);
  expected.set_repetition_penalty(1.5);
  expected.set_presence_penalty(-0.5);
  expected.set_frequency_penalty(0.75);
  expected.set_seed(18446744073709551615u);
  expected.set_n(3);
  expected.add_stop("a");
  expected.add_stop("b");
  expected.add_stop_token_ids(7);
  expected.add_stop_token_ids(8);
  expected.add_allowed_token_ids(9);
  expected.add_allowed_token_ids(10);
  expected.set_include_stop_text(true);
  expected.set_ignore_eos(true);
  expected.set_logprobs(-1);
  expected.set_prompt_logprobs(4);
  expected.set_return_token_ids(true);  // several choices are not printed live
  EXPECT_EQ(options.DebugString(), expected.DebugString());
}

TEST(GenerateFlags, StopTextsAreTakenAsTheyAreButForEscapes) {
  const auto stop = [](const std::string& text) {
    const v1::GenerateOptions options = Parse({"--stop", text});
    EXPECT_EQ(options.stop_size(), 1) << text;
    return options.stop_size() == 1 ? options.stop(0) : "";
  };
  EXPECT_EQ(stop("\\n\\n"), "\n\n");
  EXPECT_EQ(stop("\n"), "\n");
  EXPECT_EQ(stop("\\\\n"), "\\n");
  for (const char* text : {"[END]", "[a,b]", "a,b", "--", "--json", "-1", "\"quoted\"", "'", "%%", " ", "{}", "###"}) {
    EXPECT_EQ(stop(text), text);
  }
}

TEST(GenerateFlags, RefuseWhatIsNoNumber) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"--max-tokens", "-1"},
                                                                                         {"--max-tokens", "many"},
                                                                                         {"--max-tokens", "4294967296"},
                                                                                         {"--temperature", "warm"},
                                                                                         {"--top-k", "1.5"},
                                                                                         {"--seed", "-1"},
                                                                                         {"--stop", "\xFF"},
                                                                                         {"--json", "--jsonl"}}) {
    EXPECT_THROW(Parse(arguments), CLI::ParseError) << arguments[0] << " " << arguments[1];
  }
}

}  // namespace
}  // namespace sluice::cli
