// The real binary against a fake server: what goes to stdout, to stderr and into the exit code.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"

namespace sluice::cli {
namespace {

using client::Answer;
using client::Call;
using client::Fail;
using client::FakeServer;
using client::Say;
using client::SayAndHang;
using Json = nlohmann::json;

class Cli : public testing::Test {
 protected:
  Output Run(std::vector<std::string> arguments, const std::string& input = "",
             const Process::Environment& environment = {}) {
    return RunSluice(WithServer(std::move(arguments)), input, environment);
  }
  std::vector<std::string> WithServer(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--server", server_->address(), "--admin", server_->address()});
    return arguments;
  }
  Call LastCall() { return server_->calls().back(); }

  const std::unique_ptr<FakeServer> server_ = FakeServer::Start();
};

void ExpectUsageError(const Output& output, const std::string& word) {
  EXPECT_EQ(output.code, 2) << output.err;
  EXPECT_EQ(output.out, "");
  EXPECT_NE(output.err.find(word), std::string::npos) << word << " in\n" << output.err;
}

// ---- complete and chat

TEST_F(Cli, CompletePrintsTheTextAndNothingElse) {
  server_->Script({Say({"Hel", "lo"})});
  const Output output = Run({"complete", "--prompt", "Say it"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.out, "Hello\n");
  EXPECT_EQ(output.err, "");
  EXPECT_EQ(LastCall().method, "StreamComplete");
  EXPECT_EQ(LastCall().complete.prompt(), "Say it");
  EXPECT_FALSE(LastCall().complete.options().return_token_ids());
}

TEST_F(Cli, TextIsWrittenWhenItComes) {
  server_->Script({SayAndHang({"first "})});
  Process process(WithServer({"complete", "--prompt", "p"}), "");
  process.Expect("first ");  // though the stream goes on
}

TEST_F(Cli, JsonIsThePinnedObject) {
  server_->Script({Say({"Hel", "lo"})});
  for (const char* command : {"complete", "chat"}) {
    const Output output = Run({command, "--prompt", "p", "--json"});
    EXPECT_EQ(output.code, 0);
    EXPECT_EQ(output.err, "");
    EXPECT_EQ(Json::parse(output.out), Json::parse(R"({
      "text": "Hello", "token_ids": [1, 2], "finish_reason": "stop",
      "model": "fake-1", "request_id": "req-1", "seed": "42",
      "usage": {"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 2},
      "timings": {"queue_ms": 1.5, "prefill_ms": 2.5, "decode_ms": 100.0, "ttft_ms": 4.5}})"));
  }
}

TEST_F(Cli, SeveralChoicesComeAsAListOrOnePerLine) {
  Answer answer = Say({"a", "b"});
  answer.events[2].mutable_delta()->set_index(1);
  auto* finished = answer.events[3].mutable_choice_finished();
  finished->set_index(1);
  finished->set_finish_reason(v1::FINISH_REASON_STOP_SEQUENCE);
  finished->set_stop_string("END");
  server_->Script({answer});
  const Output output = Run({"complete", "--prompt", "p", "-n", "2", "--json"});
  const Json json = Json::parse(output.out);
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["text"], "a");
  EXPECT_EQ(json["choices"][1], Json::parse(R"({"text": "b", "token_ids": [2], "finish_reason": "stop_sequence",
                                                "stop_string": "END"})"));
  EXPECT_FALSE(json.contains("text"));
  EXPECT_EQ(LastCall().complete.options().n(), 2u);
  EXPECT_EQ(Run({"complete", "--prompt", "p", "-n", "2"}).out, "==> 1 of 2 <==\na\n\n==> 2 of 2 <==\nb\n");
}

TEST_F(Cli, JsonlPrintsEachEvent) {
  server_->Script({Say({"Hel", "lo"})});
  const Output output = Run({"complete", "--prompt", "p", "--jsonl"});
  std::vector<std::string> kinds;
  std::string text;
  std::istringstream lines(output.out);
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    ASSERT_EQ(event.size(), 1u);
    kinds.push_back(event.begin().key());
    if (event.contains("delta")) text += event["delta"]["text"];
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"started", "delta", "delta", "choice_finished", "completed"}));
  EXPECT_EQ(text, "Hello");
}

TEST_F(Cli, NoStreamPrintsTheSameText) {
  server_->Script({Say({"Hel", "lo"})});
  EXPECT_EQ(Run({"complete", "--prompt", "p", "--no-stream"}).out, "Hello\n");
}

TEST_F(Cli, StatsGoToStderr) {
  server_->Script({Say({"a", "b", "c"})});
  const Output output = Run({"complete", "--prompt", "p", "--stats"});
  EXPECT_EQ(output.out, "abc\n");
  EXPECT_EQ(output.err, "5 prompt tokens at 1200.0 tok/s, TTFT 4 ms, 3 tokens at 20.0 tok/s, 104 ms in all\n");
}

TEST_F(Cli, PromptsMayComeOnStdin) {
  Run({"complete"}, "from stdin\n");
  EXPECT_EQ(LastCall().complete.prompt(), "from stdin");
  Run({"complete"}, "two\nlines\n\n");
  EXPECT_EQ(LastCall().complete.prompt(), "two\nlines\n");
  const std::string large(1 << 20, 'x');
  Run({"complete"}, large);
  EXPECT_EQ(LastCall().complete.prompt(), large);
  Run({"chat"}, "hello\n");
  EXPECT_EQ(LastCall().chat.messages(0).content(0).text(), "hello");
}

TEST_F(Cli, PromptsArriveAsTyped) {
  for (const char* text :
       {"[INST] hi [/INST]", "[a,b]", "--json", "-1 + 2", "\"quoted\"", "a\\nb", "", "{}", "Grüße 世界"}) {
    Run({"complete", "--prompt", text});
    EXPECT_EQ(LastCall().complete.prompt(), text);
    EXPECT_EQ(LastCall().complete.input_case(), v1::StreamCompleteRequest::kPrompt);
  }
}

TEST_F(Cli, TokenIdsReplaceThePrompt) {
  Run({"complete", "--prompt-ids", "1,2,300"});
  const v1::TokenIds ids = LastCall().complete.prompt_ids();
  EXPECT_EQ(std::vector<uint32_t>(ids.ids().begin(), ids.ids().end()), (std::vector<uint32_t>{1, 2, 300}));
}

TEST_F(Cli, FlagsOfTheCallReachTheServer) {
  Run({"complete", "--prompt", "p", "--model", "m", "--request-id", "id-1", "--no-special", "--temperature", "0",
       "--timeout", "30"});
  const Call call = LastCall();
  EXPECT_EQ(call.complete.model(), "m");
  EXPECT_EQ(call.complete.request_id(), "id-1");
  EXPECT_TRUE(call.complete.has_parse_special() && !call.complete.parse_special());
  EXPECT_TRUE(call.complete.options().has_temperature());
  ASSERT_TRUE(call.deadline.has_value());
  EXPECT_GT(call.deadline->count(), 0);
  EXPECT_LE(call.deadline->count(), 30'000);
}

TEST_F(Cli, ChatSendsSystemAndUser) {
  const Output output = Run({"chat", "--prompt", "Hi", "-s", "Be brief", "--max-tokens", "7"});
  EXPECT_EQ(output.out, "ok\n");
  const v1::StreamChatRequest chat = LastCall().chat;
  ASSERT_EQ(chat.messages_size(), 2);
  EXPECT_EQ(chat.messages(0).role(), v1::ROLE_SYSTEM);
  EXPECT_EQ(chat.messages(0).content(0).text(), "Be brief");
  EXPECT_EQ(chat.messages(1).role(), v1::ROLE_USER);
  EXPECT_EQ(chat.messages(1).content(0).text(), "Hi");
  EXPECT_EQ(chat.options().max_tokens(), 7u);
}

TEST_F(Cli, VariablesOfTheTemplateArriveAsTyped) {
  for (const char* json : {"{\"z\": 1.0, \"a\": [1e15, 12345678901234567890]}", " {} ", "no JSON"}) {
    Run({"chat", "--prompt", "Hi", "--chat-template-kwargs", json});
    EXPECT_EQ(LastCall().chat.chat_template_kwargs_json(), json);
  }
  Run({"chat", "--prompt", "Hi"});
  EXPECT_EQ(LastCall().chat.chat_template_kwargs_json(), "");
}

TEST_F(Cli, ChatGoesOnWithTheLastConversation) {
  const Process::Environment home = {{"XDG_STATE_HOME", testing::TempDir() + "/sluice_cli_test_state"}};
  server_->Script({Say({"one"}), Say({"two"})});
  EXPECT_EQ(Run({"chat", "--prompt", "first"}, "", home).out, "one\n");
  EXPECT_EQ(Run({"chat", "--prompt", "second", "-c"}, "", home).out, "two\n");
  const v1::StreamChatRequest chat = LastCall().chat;
  ASSERT_EQ(chat.messages_size(), 3);
  EXPECT_EQ(chat.messages(0).content(0).text(), "first");
  EXPECT_EQ(chat.messages(1).role(), v1::ROLE_ASSISTANT);
  EXPECT_EQ(chat.messages(1).content(0).text(), "one");
  ExpectUsageError(Run({"chat", "--prompt", "p", "-c"}),
                   "--continue");  // no home, no last one
}

TEST_F(Cli, EnvironmentNamesServerAndModel) {
  const std::string address = server_->address();
  EXPECT_EQ(RunSluice({"complete", "--prompt", "p"}, "", {{"SLUICE_ADDR", address}, {"SLUICE_MODEL", "m"}}).out,
            "ok\n");
  EXPECT_EQ(LastCall().complete.model(), "m");
  // A flag wins.
  EXPECT_EQ(
      Run({"complete", "--prompt", "p", "--model", "n"}, "", {{"SLUICE_ADDR", "127.0.0.1:1"}, {"SLUICE_MODEL", "m"}})
          .out,
      "ok\n");
  EXPECT_EQ(LastCall().complete.model(), "n");
  EXPECT_EQ(RunSluice({"load", "--once"}, "", {{"SLUICE_ADMIN_ADDR", address}}).code, 0);
}

TEST_F(Cli, FlagsForAllCommandsMayStandBeforeTheCommand) {
  EXPECT_EQ(RunSluice({"--server", server_->address(), "complete", "--prompt", "p"}).out, "ok\n");
}

TEST_F(Cli, AProxyIsNotAskedForThisMachine) {
  const Process::Environment proxy = {{"http_proxy", "http://127.0.0.1:1"},
                                      {"https_proxy", "http://127.0.0.1:1"},
                                      {"grpc_proxy", "http://127.0.0.1:1"}};
  EXPECT_EQ(Run({"complete", "--prompt", "p"}, "", proxy).code, 0);
}

// ---- errors

TEST_F(Cli, ErrorsNameCodeReasonFieldsAndWaitOnStderr) {
  server_->Script({Fail({3,
                         "two fields are wrong",
                         "INVALID_FIELD",
                         {{"options.top_p", "must be at most 1"}, {"options.n", "two fields are wrong"}},
                         {}}),
                   Fail({8, "64 requests wait already", "QUEUE_FULL", {}, 1500}), Fail({5, "no model 'x'"})});
  Output output = Run({"complete", "--prompt", "p"});
  EXPECT_EQ(output.code, 64 + 3);
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(output.err,
            "sluice: INVALID_ARGUMENT (INVALID_FIELD): two fields are wrong\n  options.top_p: must be at most 1\n")
      << "what the message says is not said again";
  output = Run({"chat", "--prompt", "p"});
  EXPECT_EQ(output.code, 64 + 8);
  EXPECT_EQ(output.err, "sluice: RESOURCE_EXHAUSTED (QUEUE_FULL): 64 requests wait already\n  try again in 1500 ms\n");
  output = Run({"complete", "--prompt", "p", "--json"});
  EXPECT_EQ(output.code, 64 + 5);
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(output.err, "sluice: NOT_FOUND: no model 'x'\n");
}

TEST_F(Cli, AnErrorAfterTextStartsANewLine) {
  Answer answer = SayAndHang({"half"});
  answer.hang = false;
  answer.failure = client::Failure{13, "the engine failed", "ENGINE_FAULT"};
  server_->Script({answer});
  const Output output = Run({"complete", "--prompt", "p"});
  EXPECT_EQ(output.code, 64 + 13);
  EXPECT_EQ(output.out, "half\n");
  EXPECT_EQ(output.err, "sluice: INTERNAL (ENGINE_FAULT): the engine failed\n");
}

TEST_F(Cli, EveryCommandReportsAnUnreachableServer) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{"complete", "--prompt", "p"},
                                                                                       {"chat", "--prompt", "p"},
                                                                                       {"tokenize", "--text", "t"},
                                                                                       {"models"},
                                                                                       {"load", "--once"},
                                                                                       {"bench"},
                                                                                       {"cancel", "id"},
                                                                                       {"drain"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--server", "127.0.0.1:1", "--admin", "127.0.0.1:1"});
    const Output output = RunSluice(arguments);
    SCOPED_TRACE(command[0] + ": " + output.err);
    EXPECT_EQ(output.code, 64 + 14);
    EXPECT_EQ(output.out, "");
    EXPECT_EQ(output.err.rfind("sluice: UNAVAILABLE: 127.0.0.1:1: ", 0), 0u);
  }
}

TEST_F(Cli, ATimeoutIsDeadlineExceeded) {
  server_->Script({SayAndHang({"text"})});
  const Output output = Run({"complete", "--prompt", "p", "--timeout", "0.5"});
  EXPECT_EQ(output.code, 64 + 4);
  EXPECT_EQ(output.err.rfind("sluice: DEADLINE_EXCEEDED: ", 0), 0u) << output.err;
}

TEST_F(Cli, WrongUsageExitsWithTwoAndNamesTheFlag) {
  ExpectUsageError(Run({}), "no command");
  ExpectUsageError(Run({"dance"}), "dance");
  ExpectUsageError(Run({"complete", "--prompt", "p", "--bogus"}), "--bogus");
  ExpectUsageError(Run({"complete", "--prompt", "p", "--max-tokens", "-1"}), "--max-tokens");
  ExpectUsageError(Run({"complete", "--prompt", "p", "--max-tokens"}), "--max-tokens");
  ExpectUsageError(Run({"complete", "--prompt", "p", "--temperature", "warm"}), "--temperature");
  ExpectUsageError(Run({"complete", "--prompt", "p", "--prompt-ids", "1"}), "--prompt-ids");
  ExpectUsageError(Run({"complete", "--prompt-ids", "1,x"}), "--prompt-ids");
  ExpectUsageError(Run({"complete", "--prompt", "p", "--timeout", "-1"}), "--timeout");
  ExpectUsageError(Run({"chat", "--prompt", "p", "--json", "--jsonl"}), "--json");
  ExpectUsageError(Run({"tokenize", "--text", "a", "--detokenize", "1"}), "--detokenize");
  ExpectUsageError(Run({"bench", "--requests", "0"}), "--requests");
  ExpectUsageError(Run({"bench", "--rate", "0"}), "--rate");
  ExpectUsageError(Run({"inspect", "x.gguf", "--kv-dtype", "f64"}), "--kv-dtype");
  ExpectUsageError(Run({"cancel"}), "REQUEST_ID");
  EXPECT_TRUE(server_->calls().empty());
}

TEST_F(Cli, TextThatIsNotUtf8IsRefusedHere) {
  ExpectUsageError(Run({"complete", "--prompt", "\xFF"}), "--prompt");
  ExpectUsageError(Run({"complete"}, "\xFF"), "stdin");
  ExpectUsageError(Run({"chat", "--prompt", "p", "--system", "\xC3"}), "--system");
  ExpectUsageError(Run({"chat"}, "\xC3"), "stdin");
  ExpectUsageError(Run({"tokenize", "--text", "\xE4"}), "--text");
  ExpectUsageError(Run({"tokenize"}, "\xE4"), "stdin");
  ExpectUsageError(Run({"complete", "--prompt", "p", "--stop", "\xE4"}), "--stop");
  EXPECT_TRUE(server_->calls().empty());
}

// ---- signals and pipes

TEST_F(Cli, SigintCancelsTheCallAndExitsWith130) {
  server_->Script({SayAndHang({"text"})});
  Process process(WithServer({"complete", "--prompt", "p"}), "");
  process.Expect("text");
  process.Signal(SIGINT);
  const Output output = process.Wait();
  EXPECT_EQ(output.code, 130);
  EXPECT_EQ(output.out, "text\n");
  EXPECT_EQ(output.err, "");
  EXPECT_TRUE(server_->WaitForCancels(1));
}

TEST_F(Cli, SigintWhileNothingHasComeExitsWith130Too) {
  server_->Script({[] {
    Answer silent;
    silent.hang = true;
    return silent;
  }()});
  Process process(WithServer({"chat", "--prompt", "p", "--json"}), "");
  ASSERT_TRUE(server_->WaitForCalls(1));
  process.Signal(SIGINT);
  const Output output = process.Wait();
  EXPECT_EQ(output.code, 130);
  EXPECT_EQ(output.out, "");
  EXPECT_TRUE(server_->WaitForCancels(1));
}

TEST_F(Cli, SigintIsHeardWhileTheReaderOfThePipeSleeps) {
  server_->Script({SayAndHang(std::vector<std::string>(40, std::string(65536, 'x')))});
  Process process(WithServer({"complete", "--prompt", "p"}), "");
  process.Expect("x");  // from here on nobody reads; the pipe is soon full
  process.Signal(SIGINT);
  EXPECT_TRUE(server_->WaitForCancels(1));
  EXPECT_EQ(process.Wait().code, 130);
}

TEST_F(Cli, AClosedPipeEndsTheCall) {
  Answer endless = SayAndHang(std::vector<std::string>(10'000, "line\n"));
  endless.pause = std::chrono::milliseconds(1);
  server_->Script({endless});
  Process process(WithServer({"complete", "--prompt", "p"}), "");
  process.Expect("line");
  process.CloseStdout();  // as `| head -1` does
  const Output output = process.Wait();
  EXPECT_EQ(output.signal, SIGPIPE);
  EXPECT_EQ(output.err, "");
  EXPECT_TRUE(server_->WaitForCancels(1));
}

// ---- the other commands

TEST_F(Cli, TokenizeListsIdsAndText) {
  Output output = Run({"tokenize", "--text", "hi\n"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.out, "104\t\"h\"\n105\t\"i\"\n10\t\"\\n\"\n");
  EXPECT_EQ(output.err, "");
  EXPECT_EQ(Run({"tokenize"}, "hi\n").out, "104\t\"h\"\n105\t\"i\"\n");
  EXPECT_EQ(Json::parse(Run({"tokenize", "--text", "hi", "--json"}).out), Json::parse(R"({"token_ids": [104, 105]})"));
  output = Run({"tokenize", "--text", "ü", "--no-special"});
  EXPECT_EQ(output.out, "999\t\"<plain>\"\n195\t\"\uFFFD\"\n188\t\"\uFFFD\"\n");
}

TEST_F(Cli, DetokenizeJoinsIds) {
  EXPECT_EQ(Run({"tokenize", "--detokenize", "104,105"}).out, "hi\n");
  EXPECT_EQ(Json::parse(Run({"tokenize", "--detokenize", "104,105", "--json"}).out), Json::parse(R"({"text": "hi"})"));
}

TEST_F(Cli, ModelsDescribesThem) {
  const Output output = Run({"models"});
  EXPECT_EQ(output.code, 0);
  for (const char* word : {"fake-1", "llama", "134.5 M", "Q4_1", "int16", "f16", "2048", "8192", "chat"}) {
    EXPECT_NE(output.out.find(word), std::string::npos) << word << " in\n" << output.out;
  }
  const Json json = Json::parse(Run({"models", "--json"}).out);
  EXPECT_EQ(json["models"][0]["id"], "fake-1");
  EXPECT_EQ(json["models"][0]["max_model_len"], 2048);
  EXPECT_EQ(output.out.find("loading"), std::string::npos);
}

TEST_F(Cli, ModelsTellsStatesInWords) {
  server_->SetState(v1::MODEL_STATE_LOADING);
  EXPECT_EQ(Run({"models"}).out, "fake-1\n  the model is still loading; requests are refused until it is ready\n");
  EXPECT_EQ(Json::parse(Run({"models", "--json"}).out)["models"][0]["state"], "MODEL_STATE_LOADING");
  server_->SetState(v1::MODEL_STATE_DRAINING);
  std::string out = Run({"models"}).out;
  EXPECT_EQ(out.rfind("fake-1\n  the server is draining: it finishes what runs and refuses new requests\n  llama", 0),
            0u)
      << out;
  server_->SetState(v1::MODEL_STATE_FAILED);
  out = Run({"models"}).out;
  EXPECT_EQ(out.rfind("fake-1\n  the engine has failed; the server's log says why\n", 0), 0u) << out;
}

TEST_F(Cli, HealthHasTheExitCodesOfGrpcHealthProbe) {
  Output output = Run({"health"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.out, "SERVING\n");
  server_->SetHealth("readiness", false);
  output = Run({"health", "--service", "readiness"});
  EXPECT_EQ(output.code, 4);
  EXPECT_EQ(output.out, "NOT_SERVING\n");
  EXPECT_EQ(output.err, "sluice: the server is about to stop, or its engine makes no progress; its log says which\n");
  server_->SetState(v1::MODEL_STATE_LOADING);
  output = Run({"health", "--service", "readiness"});
  EXPECT_EQ(output.code, 4);
  EXPECT_EQ(output.out, "NOT_SERVING\n");
  EXPECT_EQ(output.err, "sluice: the model is still loading; requests are refused until it is ready\n");
  server_->SetState(v1::MODEL_STATE_DRAINING);
  EXPECT_NE(Run({"health", "--service", "readiness"}).err.find("draining"), std::string::npos);
  output = Run({"health", "--service", "nobody"});
  EXPECT_EQ(output.code, 3);
  EXPECT_EQ(output.out, "");
  EXPECT_NE(output.err.find("nobody"), std::string::npos);
  output = RunSluice({"probe", "--server", "127.0.0.1:1"});
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.out, "");
  server_->FailOthers(client::Failure{13, "broken"});
  output = Run({"health"});
  EXPECT_EQ(output.code, 3);
  EXPECT_EQ(output.err, "sluice: INTERNAL: broken\n");
}

TEST_F(Cli, LoadPrintsALineOrAnObject) {
  Output output = Run({"load", "--once"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.err, "");
  EXPECT_EQ(
      output.out,
      "running   3  waiting   1  KV [##########+++++.....]  50 %    123.5 tok/s out    456.2 tok/s in  preempted 2\n");
  const Json json = Json::parse(Run({"load", "--once", "--json"}).out);
  EXPECT_EQ(json["running"], 3);
  EXPECT_EQ(json["waiting_tokens"], 77);
  EXPECT_EQ(json["kv_blocks"], Json::parse(R"({"live": 50, "cached": 25, "free": 25, "total": 100})"));
  EXPECT_EQ(json["generation_tokens_per_second"], 123.5);
  EXPECT_EQ(json["draining"], false);
  EXPECT_EQ(json["state"], "ready");
}

TEST_F(Cli, LoadTellsStatesInWords) {
  server_->SetState(v1::MODEL_STATE_LOADING);
  EXPECT_EQ(Run({"load", "--once"}).out, "the model is still loading; requests are refused until it is ready\n");
  EXPECT_EQ(Json::parse(Run({"load", "--once", "--json"}).out)["state"], "loading");
  server_->SetState(v1::MODEL_STATE_DRAINING);
  EXPECT_NE(Run({"load", "--once"}).out.find("preempted 2  draining\n"), std::string::npos);
}

TEST_F(Cli, LoadStaysOnOneLineOfAnyTerminal) {
  for (int columns : {40, 80, 120}) {
    Process process = Process::AtTerminal(WithServer({"load", "--interval", "0.05"}), {}, columns);
    for (int i = 0; i < 3; ++i) {
      std::string line = process.Expect("\r\033[K");
      line.resize(line.size() - 4);
      EXPECT_LT(line.size(), size_t(columns)) << line;
    }
    process.Resize(30);
    process.Expect("KV 50 %");
    process.Expect("\r\033[K");
    std::string line = process.Expect("\r\033[K");
    EXPECT_LT(line.size() - 4, 30u) << line;
  }
}

TEST_F(Cli, LoadGoesOnUntilInterrupted) {
  Process process(WithServer({"load", "--interval", "0.05", "--json"}), "");
  for (int i = 0; i < 3; ++i) process.Expect("\n");
  process.Signal(SIGINT);
  const Output output = process.Wait();
  EXPECT_EQ(output.code, 130);
  EXPECT_EQ(output.err, "");
}

TEST_F(Cli, CancelAndDrainAskTheServer) {
  Output output = Run({"cancel", "known"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.out + output.err, "");
  output = Run({"cancel", "other"});
  EXPECT_EQ(output.code, 64 + 5);
  EXPECT_EQ(output.err, "sluice: NOT_FOUND (REQUEST_NOT_FOUND): no call 'other' is in progress\n");
  output = Run({"drain"});
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.out, "") << "not data";
  EXPECT_EQ(output.err, "sluice: draining: new requests are refused; 3 sequences still run\n");
}

TEST_F(Cli, TheOtherCommandsKeepTheTimeoutToo) {
  server_->DelayOthers(std::chrono::milliseconds(600));
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"models"}, {"tokenize", "--text", "t"}, {"cancel", "known"}, {"drain"}, {"load", "--once"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--timeout", "0.1"});
    EXPECT_EQ(Run(arguments).code, 64 + 4) << command[0];
  }
}

TEST_F(Cli, HelpAndVersionSucceed) {
  const Output version = Run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("sluice ", 0), 0u);
  const Output help = Run({"--help"});
  EXPECT_EQ(help.code, 0);
  std::istringstream all(help.out);
  for (std::string line; std::getline(all, line);) EXPECT_LE(line.size(), 80u) << line;
  for (const char* command : {"complete", "chat", "tokenize", "models", "health", "load", "bench", "inspect", "cancel",
                              "drain", "completion"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
    const Output own = Run({command, "--help"});
    EXPECT_EQ(own.code, 0) << command;
    EXPECT_NE(own.out.find("Usage: sluice " + std::string(command)), std::string::npos) << own.out;
    EXPECT_EQ(own.err, "") << command;
    EXPECT_EQ(own.out.find("Excludes"), std::string::npos) << own.out;
    std::istringstream lines(own.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(Cli, PipesGetNoColourAndNoProgress) {
  Answer slow = Say({"a", "b"});
  slow.pause = std::chrono::milliseconds(400);  // longer than the second after which a terminal gets a progress line
  server_->Script({slow});
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"complete", "--prompt", "p", "--stats"}, {"complete", "--prompt", "p", "--json", "--max-tokens", "4"}}) {
    const Output output = Run(arguments);
    EXPECT_EQ(output.code, 0);
    EXPECT_EQ((output.out + output.err).find('\033'), std::string::npos);
    EXPECT_EQ((output.out + output.err).find('\r'), std::string::npos);
  }
}

TEST_F(Cli, BashCompletionOffersCommandsAndTheirFlags) {
  const Output script = Run({"completion"});
  ASSERT_EQ(script.code, 0);
  const std::string path = testing::TempDir() + "/sluice_completion.bash";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs(script.out.c_str(), file);
  std::fclose(file);
  const auto complete = [&](const std::string& words, int index) {
    const std::string command = "bash -c 'source " + path + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=" + std::to_string(index) + "; _sluice; echo \"${COMPREPLY[*]}\"'";
    std::string result;
    FILE* shell = popen(command.c_str(), "r");
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, shell) != nullptr) result += buffer;
    pclose(shell);
    return result;
  };
  EXPECT_EQ(complete("sluice ch", 1), "chat\n");
  EXPECT_EQ(complete("sluice chat --top", 2), "--top-p --top-k\n");
  EXPECT_EQ(complete("sluice bench --conc", 2), "--concurrency\n");
  EXPECT_EQ(complete("sluice models --ser", 2), "--server\n");
}

}  // namespace
}  // namespace sluice::cli
