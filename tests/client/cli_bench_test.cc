// `sluice bench` against the fake server: what it sends, in which order, and what it counts.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "client/cli/bench_stats.h"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"

namespace sluice::cli {
namespace {

using client::Answer;
using client::Call;
using client::Fail;
using client::Failure;
using client::FakeServer;
using client::Say;
using client::SayAndHang;
using Json = nlohmann::json;

class BenchTest : public testing::Test {
 protected:
  std::vector<std::string> Arguments(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"bench", "--server", server_->address()});
    return flags;
  }
  Output Run(std::vector<std::string> flags) { return RunSluice(Arguments(std::move(flags))); }
  Json RunJson(std::vector<std::string> flags, int code = 0) {
    flags.push_back("--json");
    const Output output = Run(std::move(flags));
    EXPECT_EQ(output.code, code) << output.err;
    return Json::parse(output.out, nullptr, false);
  }

  const std::unique_ptr<FakeServer> server_ = FakeServer::Start();
};

TEST_F(BenchTest, CountsRequestsAndTokensWithoutTheWarmUp) {
  server_->Script({Say({"a", "b", "c"})});
  const Json json = RunJson({"--requests", "10", "--warmup", "3", "--concurrency", "4"});
  EXPECT_EQ(server_->calls().size(), 13u);
  EXPECT_EQ(json["succeeded"], 10);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(json["errors"], Json::object());
  // 10 requests of 3 tokens and prompts of 5, over the same time.
  const double seconds = json["duration_s"];
  EXPECT_GT(seconds, 0);
  EXPECT_NEAR(json["output_tokens_per_s"].get<double>() * seconds, 30, 1e-6);
  EXPECT_NEAR(json["total_tokens_per_s"].get<double>() * seconds, 80, 1e-6);
  EXPECT_NEAR(json["requests_per_s"].get<double>() * seconds, 10, 1e-6);
}

TEST_F(BenchTest, TimesAreOrderedAndNotShorterThanTheServersPauses) {
  Answer answer = Say({"a", "b", "c", "d"});
  answer.pause = std::chrono::milliseconds(5);  // before started, each delta, choice_finished and completed
  server_->Script({answer});
  const Json json = RunJson({"--requests", "6", "--concurrency", "2"});
  for (const char* name : {"ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "ntpot_ms"}) {
    const Json& summary = json[name];
    EXPECT_LE(summary["p50"], summary["p90"]) << name;
    EXPECT_LE(summary["p90"], summary["p99"]) << name;
    EXPECT_LE(summary["p99"], summary["max"]) << name;
    EXPECT_LE(summary["mean"], summary["max"]) << name;
    EXPECT_GT(summary["mean"], 0) << name;
  }
  EXPECT_GE(json["ttft_ms"]["p50"], 10);
  EXPECT_GE(json["e2e_ms"]["p50"], 35);
  EXPECT_GE(json["e2e_ms"]["p50"], json["ttft_ms"]["p50"]);
  EXPECT_GE(json["duration_s"], 3 * 0.035) << "two at a time";
}

TEST_F(BenchTest, AClosedLoopNeverHasMoreInFlightThanCallers) {
  server_->Script({SayAndHang({"a"})});
  Process process(Arguments({"--requests", "20", "--warmup", "0", "--concurrency", "3"}), "");
  ASSERT_TRUE(server_->WaitForCalls(3));
  process.Signal(SIGINT);
  const Output output = process.Wait();
  EXPECT_EQ(output.code, 130);
  EXPECT_TRUE(server_->WaitForCancels(3)) << "SIGINT cancels what is in flight";
  EXPECT_EQ(server_->calls().size(), 3u);
  EXPECT_NE(output.out.find("0 requests succeeded, 0 failed"), std::string::npos) << output.out;
}

TEST_F(BenchTest, AnOpenLoopSendsWhateverTheServerDoes) {
  server_->Script({SayAndHang({})});  // no answer ever ends
  Process process(Arguments({"--requests", "40", "--warmup", "0", "--rate", "2000", "--concurrency", "1"}), "");
  EXPECT_TRUE(server_->WaitForCalls(40));
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait().code, 130);
  // Each request has its own number: all were sent, none twice.
  std::set<uint64_t> seeds;
  for (const Call& call : server_->calls()) seeds.insert(call.complete.options().seed());
  EXPECT_EQ(seeds.size(), 40u);
  EXPECT_EQ(*seeds.begin(), 1u);
  EXPECT_EQ(*seeds.rbegin(), 40u);
}

TEST_F(BenchTest, AnOpenLoopTakesAtLeastTheTimeOfItsSchedule) {
  const Json json = RunJson({"--requests", "50", "--warmup", "0", "--rate", "100", "--seed", "1"});
  EXPECT_EQ(json["succeeded"], 50);
  EXPECT_GE(json["duration_s"], PoissonTimes(50, 100, 1).back()) << "sends never come early";
}

TEST_F(BenchTest, CountsErrorsByReason) {
  const Answer full = Fail({8, "full", "QUEUE_FULL", {}, 10});
  server_->Script({Say({"a"}), full, Fail({14, "draining", "DRAINING"}), full, Fail({13, "plain"}), Say({"b"})});
  const Output output = Run({"--requests", "6", "--warmup", "0", "--concurrency", "1", "--json"});
  EXPECT_EQ(output.code, 1);
  const Json json = Json::parse(output.out);
  EXPECT_EQ(json["succeeded"], 2);
  EXPECT_EQ(json["failed"], 4);
  EXPECT_EQ(json["errors"],
            Json::parse(R"({"RESOURCE_EXHAUSTED QUEUE_FULL": 2, "UNAVAILABLE DRAINING": 1, "INTERNAL": 1})"));
  EXPECT_EQ(server_->calls().size(), 6u) << "an error is a result and is not tried again";
}

TEST_F(BenchTest, AFailedWarmUpIsToldOnStderr) {
  server_->Script({Fail({8, "full", "QUEUE_FULL"}), Say({"a"})});
  const Output output = Run({"--requests", "1", "--warmup", "1"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.err, "sluice: warm-up requests failed:\n  1 x RESOURCE_EXHAUSTED QUEUE_FULL: full\n");
}

TEST_F(BenchTest, ErrorsAloneAreToldWithoutATableOfZeros) {
  server_->Script({Fail({8, "64 requests wait already", "QUEUE_FULL"}), Fail({13, "broken\033[2J"})});
  Output output = Run({"--requests", "3", "--warmup", "0", "--concurrency", "1"});
  EXPECT_EQ(output.code, 1);
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(
      output.err,
      "sluice: all requests failed:\n  2 x INTERNAL: broken^[[2J\n  1 x RESOURCE_EXHAUSTED QUEUE_FULL: 64 requests "
      "wait already\n");
  output = Run({"--requests", "3", "--warmup", "0", "--json"});
  EXPECT_EQ(output.code, 1);
  const Json json = Json::parse(output.out);
  EXPECT_EQ(json["errors"], Json::parse(R"({"INTERNAL": 3})"));
  EXPECT_EQ(json["ttft_ms"], nullptr) << "not measured, which is not 0";
}

TEST_F(BenchTest, WhatWasNotMeasuredIsNoZero) {
  server_->Script({Say({"a"})});  // one token: no gap between two
  const Output output = Run({"--requests", "2", "--warmup", "0"});
  EXPECT_EQ(output.code, 0);
  EXPECT_NE(output.out.find("ITL               -         -         -         -         -\n"), std::string::npos)
      << output.out;
  const Json json = RunJson({"--requests", "2", "--warmup", "0"});
  EXPECT_EQ(json["itl_ms"], nullptr);
  EXPECT_EQ(json["tpot_ms"], nullptr);
  EXPECT_GT(json["ttft_ms"]["max"], 0);
}

TEST_F(BenchTest, RandomPromptsRepeatWithTheSeedAndDifferPerRequest) {
  const auto prompts = [&](const std::string& seed) {
    const size_t before = server_->calls().size();
    RunJson({"--requests", "4", "--warmup", "2", "--concurrency", "1", "--prompt-tokens", "20", "--seed", seed});
    std::vector<std::string> result;
    const std::vector<Call> calls = server_->calls();
    for (size_t i = before; i < calls.size(); ++i) {
      const auto& ids = calls[i].complete.prompt_ids();
      EXPECT_EQ(ids.ids_size(), 20);
      for (uint32_t id : ids.ids()) EXPECT_LT(id, 1000u) << "the model's vocabulary";
      result.push_back(ids.SerializeAsString());
    }
    return result;
  };
  const std::vector<std::string> first = prompts("7");
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 6u) << "warm-up prompts are others";
  EXPECT_EQ(prompts("7"), first);
  EXPECT_NE(prompts("8"), first);
}

TEST_F(BenchTest, RequestsAskForWhatTheFlagsSay) {
  RunJson({"--requests", "1", "--warmup", "0", "--max-tokens", "9", "--temperature", "0.5", "--model", "fake",
           "--timeout", "20"});
  Call call = server_->calls().back();
  EXPECT_EQ(call.complete.model(), "fake");
  EXPECT_EQ(call.complete.options().max_tokens(), 9u);
  EXPECT_EQ(call.complete.options().temperature(), 0.5f);
  EXPECT_TRUE(call.complete.options().ignore_eos());
  EXPECT_TRUE(call.complete.options().return_token_ids());
  EXPECT_TRUE(call.deadline.has_value());
  RunJson({"--requests", "1", "--warmup", "0", "--stop-at-eos"});
  EXPECT_FALSE(server_->calls().back().complete.options().ignore_eos());
}

TEST_F(BenchTest, PromptsMayComeFromAFile) {
  const std::string path = testing::TempDir() + "/sluice_bench_prompts";
  std::ofstream(path) << "one\n\ntwo\n";
  RunJson({"--requests", "4", "--warmup", "0", "--concurrency", "1", "--prompt-file", path});
  std::string prompts;
  for (const Call& call : server_->calls()) prompts += call.complete.prompt() + " ";
  EXPECT_EQ(prompts, "one two one two ");

  const Output missing = Run({"--prompt-file", "/nonexistent"});
  EXPECT_EQ(missing.code, 64 + 5);
  EXPECT_NE(missing.err.find("/nonexistent"), std::string::npos);
  std::ofstream(path) << "\xFF\n";
  EXPECT_EQ(Run({"--prompt-file", path}).code, 64 + 3);
}

TEST_F(BenchTest, AnUnknownModelIsNamed) {
  const Output output = Run({"--model", "nobody"});
  EXPECT_EQ(output.code, 64 + 5);
  EXPECT_NE(output.err.find("nobody"), std::string::npos);
}

TEST_F(BenchTest, GoalsGiveGoodput) {
  EXPECT_EQ(RunJson({"--requests", "3", "--goal-e2e", "1000000"})["goodput"], 1.0);
  EXPECT_EQ(RunJson({"--requests", "3", "--goal-ttft", "0.000001"})["goodput"], 0.0);
  EXPECT_FALSE(RunJson({"--requests", "3"}).contains("goodput"));
}

TEST_F(BenchTest, TheReportIsATableOnStdout) {
  server_->Script({Say({"a", "b"})});
  const Output output = Run({"--requests", "5"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.err, "");
  EXPECT_EQ(output.out.rfind("5 requests succeeded, 0 failed, in ", 0), 0u) << output.out;
  for (const char* word : {"TTFT", "ITL", "TPOT", "e2e", "p50", "p90", "p99", "output tokens/s"}) {
    EXPECT_NE(output.out.find(word), std::string::npos) << word;
  }
}

TEST_F(BenchTest, ATerminalGetsAProgressBar) {
  Answer slow = Say({"a"});
  slow.pause = std::chrono::milliseconds(150);
  server_->Script({slow});
  Process process = Process::AtTerminal(Arguments({"--requests", "8", "--warmup", "0", "--concurrency", "2"}));
  process.Expect("requests [#");
  process.Expect("/8");
  process.Expect("8 requests succeeded");
  EXPECT_EQ(process.Wait().code, 0);
}

}  // namespace
}  // namespace sluice::cli
