// The conversation at a terminal of its own.
#include <gtest/gtest.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"

namespace sluice::cli {
namespace {

using client::Fail;
using client::FakeServer;
using client::Say;
using client::SayAndHang;

constexpr char kCtrlC[] = "\x03";
constexpr char kCtrlD[] = "\x04";

class Repl : public testing::Test {
 protected:
  Process Start(std::vector<std::string> flags = {}, Process::Environment environment = {}, int columns = 80) {
    flags.insert(flags.begin(), {"chat", "--server", server_->address()});
    environment.emplace("XDG_STATE_HOME", state_);
    Process process = Process::AtTerminal(flags, environment, columns);
    process.Expect("Ctrl-D to leave");
    process.Expect("> ");
    return process;
  }

  // "user: a|assistant: b" of a call.
  std::string Messages(size_t call) {
    const v1::StreamChatRequest chat = server_->calls().at(call).chat;
    std::string text;
    for (const auto& message : chat.messages()) {
      text += (text.empty() ? "" : "|") + v1::Role_Name(message.role()).substr(5) + ": " + message.content(0).text();
    }
    return text;
  }

  const std::unique_ptr<FakeServer> server_ = FakeServer::Start();
  const std::string state_ =
      testing::TempDir() + "/sluice_repl_test_" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Repl, TheSecondTurnCarriesTheFirst) {
  server_->Script({Say({"Hel", "lo"}), Say({"Fine"})});
  Process process = Start({"--system", "Be nice"});
  process.Type("Hi there\r");
  process.Expect("Hello\r\n");
  process.Expect("> ");
  process.Type("How are you?\r");
  process.Expect("Fine\r\n");
  process.Expect("> ");
  process.Type(kCtrlD);
  EXPECT_EQ(process.Wait().code, 0);
  EXPECT_EQ(Messages(0), "SYSTEM: Be nice|USER: Hi there");
  EXPECT_EQ(Messages(1), "SYSTEM: Be nice|USER: Hi there|ASSISTANT: Hello|USER: How are you?");
}

TEST_F(Repl, CtrlCStopsTheAnswerAndTheConversationGoesOn) {
  server_->Script({SayAndHang({"never ending"}), Say({"short"})});
  Process process = Start();
  process.Type("Talk\r");
  process.Expect("never ending");
  process.Type(kCtrlC);
  EXPECT_TRUE(server_->WaitForCancels(1));
  process.Expect("> ");
  process.Type("Again\r");
  process.Expect("short\r\n");
  process.Expect("> ");
  process.Type("/bye\r");
  EXPECT_EQ(process.Wait().code, 0);
  EXPECT_EQ(Messages(1), "USER: Talk|ASSISTANT: never ending|USER: Again") << "what came is kept";
}

TEST_F(Repl, CtrlCIsAKeyAtThePromptAndASignalElsewhere) {
  server_->Script({SayAndHang({"never ending"})});
  Process process = Start();
  EXPECT_EQ(process.TerminalModes() & ISIG, 0u);
  process.Type("Talk\r");
  process.Expect("never ending");
  EXPECT_NE(process.TerminalModes() & ISIG, 0u);
  process.Type(kCtrlC);
  process.Expect("> ");
  EXPECT_EQ(process.TerminalModes() & ISIG, 0u);
  process.Type(kCtrlD);
  EXPECT_EQ(process.Wait().code, 0);
  EXPECT_NE(process.TerminalModes() & ISIG, 0u);
}

TEST_F(Repl, CtrlCAtThePromptThrowsTheLineAway) {
  Process process = Start();
  for (int i = 0; i < 3; ++i) {  // however often
    process.Type("not this");
    process.Expect("not this");
    process.Type(kCtrlC);
    process.Expect("^C\r\n");
    process.Expect("> ");
  }
  process.Type("but this\r");
  process.Expect("ok\r\n");
  process.Expect("> ");
  process.Type(kCtrlD);
  EXPECT_EQ(process.Wait().code, 0);
  ASSERT_EQ(server_->calls().size(), 1u);
  EXPECT_EQ(Messages(0), "USER: but this");
}

TEST_F(Repl, CtrlDIsEndOnlyOnAnEmptyLine) {
  Process process = Start();
  process.Type("abc");
  process.Expect("abc");
  process.Type(kCtrlD);
  process.Type("d\r");
  process.Expect("ok\r\n");
  process.Expect("> ");
  EXPECT_EQ(Messages(0), "USER: abcd");
  process.Type(kCtrlD);
  EXPECT_EQ(process.Wait().code, 0);
}

TEST_F(Repl, QuotesSpanLines) {
  Process process = Start();
  process.Type("\"\"\"first\r");
  process.Expect(". ");
  process.Type("/second\r");
  process.Expect(". ");
  process.Type("third\"\"\"\r");
  process.Expect("ok\r\n");
  process.Expect("> ");
  process.Type("\"\"\"one line\"\"\"\r");
  process.Expect("ok\r\n");
  process.Expect("> ");
  process.Type("\"\"\"\r");
  process.Expect(". ");
  process.Type("/show\r");
  process.Expect(". ");
  process.Type("\"\"\"\r");
  process.Expect("ok\r\n");
  EXPECT_EQ(Messages(0), "USER: first\n/second\nthird");
  EXPECT_EQ(server_->calls()[1].chat.messages(2).content(0).text(), "one line");
  EXPECT_EQ(server_->calls()[2].chat.messages(4).content(0).text(), "/show\n");
}

TEST_F(Repl, CtrlCLeavesTheQuotes) {
  Process process = Start();
  process.Type("\"\"\"first\r");
  process.Expect(". ");
  process.Type(kCtrlC);
  process.Expect("> ");
  process.Type("plain\r");
  process.Expect("ok\r\n");
  EXPECT_EQ(Messages(0), "USER: plain");
}

TEST_F(Repl, APasteOfSeveralLinesIsOneMessage) {
  Process process = Start();
  process.Type("see: \033[200~first line\rsecond line\033[201~ end\r");
  process.Expect("ok\r\n");
  ASSERT_EQ(server_->calls().size(), 1u);
  EXPECT_EQ(Messages(0), "USER: see: first line\nsecond line end");
}

TEST_F(Repl, OtherScriptsCanBeTypedInAnyLocale) {
  for (const char* locale : {"C", "C.UTF-8", ""}) {
    Process process = Start({}, {{"LC_ALL", locale}});
    process.Type("Grüße 世界 👋\r");
    process.Expect("ok\r\n");
    EXPECT_EQ(server_->calls().back().chat.messages(0).content(0).text(), "Grüße 世界 👋") << "LC_ALL=" << locale;
  }
}

TEST_F(Repl, SettingsHoldFromTheNextAnswerOn) {
  Process process = Start();
  process.Type("/set temperature 0\r");
  process.Expect("> ");
  process.Type("/set max_tokens 3\r");
  process.Expect("> ");
  process.Type("/set stats on\r");
  process.Expect("> ");
  process.Type("Hi\r");
  process.Expect("ok\r\n");
  process.Expect("5 prompt tokens");
  const v1::GenerateOptions options = server_->calls()[0].chat.options();
  EXPECT_TRUE(options.has_temperature());
  EXPECT_EQ(options.temperature(), 0);
  EXPECT_EQ(options.max_tokens(), 3u);
}

TEST_F(Repl, ClearForgetsAndAFailedQuestionIsNotKept) {
  server_->Script({Say({"one"}), Fail({8, "full", "QUEUE_FULL"}), Say({"three"}), Say({"four"})});
  Process process = Start();
  process.Type("first\r");
  process.Expect("one\r\n");
  process.Type("second\r");
  process.Expect("RESOURCE_EXHAUSTED (QUEUE_FULL): full");
  process.Expect("> ");
  process.Type("third\r");
  process.Expect("three\r\n");
  EXPECT_EQ(Messages(2), "USER: first|ASSISTANT: one|USER: third");
  process.Expect("> ");
  process.Type("/clear\r");
  process.Expect("> ");
  process.Type("fourth\r");
  process.Expect("four\r\n");
  EXPECT_EQ(Messages(3), "USER: fourth");
}

TEST_F(Repl, HistoryOutlivesTheProgram) {
  {
    Process process = Start();
    process.Type("remember me\r");
    process.Expect("ok\r\n");
    process.Expect("> ");
    process.Type("/bye\r");
    EXPECT_EQ(process.Wait().code, 0);
  }
  Process process = Start();
  process.Type("\033[A\033[A");  // up, over /bye
  process.Expect("remember me");
  process.Type("\r");
  process.Expect("ok\r\n");
  EXPECT_EQ(Messages(1), "USER: remember me");
}

TEST_F(Repl, AnswersCannotCommandTheTerminal) {
  server_->Script({Say({"\033]0;title\a\033[2J", "text"})});
  Process process = Start({}, {{"NO_COLOR", "1"}});
  process.Type("Hi\r");
  const std::string shown = process.Expect("text\r\n");
  EXPECT_NE(shown.find("^[]0;title^G^[[2Jtext"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("\033]0"), std::string::npos);
}

TEST_F(Repl, NoColourWithoutColour) {
  const auto greeting = [&](const Process::Environment& environment) {
    Process process = Process::AtTerminal({"chat", "--server", server_->address()}, environment);
    return process.Expect("Ctrl-D to leave");
  };
  EXPECT_NE(greeting({}).find("\033[2m"), std::string::npos);
  EXPECT_EQ(greeting({{"NO_COLOR", "1"}}).find("\033[2m"), std::string::npos);
  EXPECT_EQ(greeting({{"TERM", "dumb"}}).find("\033[2m"), std::string::npos);
}

TEST_F(Repl, TheModelAndItsServerAreNamedFirst) {
  Process process = Process::AtTerminal({"chat", "--server", server_->address()}, {{"NO_COLOR", "1"}});
  EXPECT_EQ(process.Expect("\n"), "fake-1 at " + server_->address() + "\r\n");
  server_->SetState(v1::MODEL_STATE_LOADING);
  Process loading = Process::AtTerminal({"chat", "--server", server_->address()}, {{"NO_COLOR", "1"}});
  EXPECT_EQ(loading.Expect("\n"), "fake-1 at " + server_->address() +
                                      ": the model is still loading; requests are refused until it is ready\r\n");
}

TEST_F(Repl, WhatCannotWorkIsSaidBeforeAnythingIsTyped) {
  const auto end = [](const std::vector<std::string>& arguments) {
    return Process::AtTerminal(arguments, {{"NO_COLOR", "1"}}).Wait();
  };
  Output output = end({"chat", "--server", "127.0.0.1:1"});
  EXPECT_EQ(output.code, 64 + 14);
  EXPECT_EQ(output.out.rfind("sluice: UNAVAILABLE: 127.0.0.1:1: ", 0), 0u) << output.out;
  EXPECT_EQ(output.out.find("> "), std::string::npos);
  output = end({"chat", "--server", server_->address(), "--model", "nobody"});
  EXPECT_EQ(output.code, 64 + 5);
  EXPECT_NE(output.out.find("the server has no model 'nobody'"), std::string::npos) << output.out;
  server_->SetChatTemplate(false);
  output = end({"chat", "--server", server_->address()});
  EXPECT_EQ(output.code, 64 + 9);
  EXPECT_NE(output.out.find("has no chat template; sluice complete"), std::string::npos) << output.out;
  server_->SetState(v1::MODEL_STATE_FAILED);
  EXPECT_EQ(end({"chat", "--server", server_->address()}).code, 64 + 14);
}

TEST_F(Repl, ExitLeaves) {
  Process process = Start();
  process.Type("/exit\r");
  EXPECT_EQ(process.Wait().code, 0);
}

client::Answer CutAnswer() {
  client::Answer answer = Say({"one", " two"});
  answer.events[3].mutable_choice_finished()->set_finish_reason(v1::FINISH_REASON_LENGTH);
  return answer;
}

TEST_F(Repl, AnswersCutByLengthSaySo) {
  server_->Script({CutAnswer(), CutAnswer(), Say({"whole"})});
  Process process = Start({}, {{"NO_COLOR", "1"}});
  process.Type("/set max_tokens 2\r");
  process.Expect("> ");
  process.Type("Hi\r");
  process.Expect("one two\r\ncut off at max_tokens (2); /set max_tokens N changes it\r\n");
  process.Expect("> ");
  process.Type("/set max_tokens default\r");
  process.Expect("> ");
  process.Type("Hi\r");
  process.Expect("one two\r\ncut off: the context is full; /clear begins a new conversation\r\n");
  process.Expect("> ");
  process.Type("Hi\r");
  EXPECT_EQ(process.Expect("> ").find("cut off"), std::string::npos) << "only where it is so";
}

TEST_F(Repl, AFullContextSaysClear) {
  server_->Script({Fail({3, "messages: found 2100 tokens, expected at most 2048", "CONTEXT_LENGTH_EXCEEDED"}),
                   Fail({13, "broken", "DEVICE_FAULT"})});
  Process process = Start({}, {{"NO_COLOR", "1"}});
  process.Type("Hi\r");
  process.Expect("CONTEXT_LENGTH_EXCEEDED");
  process.Expect("the conversation has become too long for the model: /clear begins a new one\r\n");
  process.Expect("> ");
  process.Type("Hi\r");
  process.Expect("DEVICE_FAULT");
  EXPECT_EQ(process.Expect("> ").find("/clear"), std::string::npos);
}

TEST_F(Repl, KeysTypedDuringAnAnswerWaitUnseen) {
  server_->Script({SayAndHang({"first "}), Say({"second"})});
  Process process = Start();
  EXPECT_EQ(process.TerminalModes() & ECHO, 0u) << "the editor draws the line itself";
  process.Type("Hi\r");
  process.Expect("first ");
  EXPECT_EQ(process.TerminalModes() & ECHO, 0u);
  process.Type("typed ahead");
  process.Type(kCtrlC);
  const std::string until_prompt = process.Expect("> ");
  EXPECT_EQ(until_prompt.find("typed"), std::string::npos) << until_prompt;
  process.Type(kCtrlD);
}

TEST_F(Repl, LinesTypedDuringAnAnswerAreTheNextMessages) {
  client::Answer slow = Say({"first"});
  slow.pause = std::chrono::milliseconds(200);
  server_->Script({slow, Say({"second"})});
  Process process = Start();
  process.Type("one\r");
  ASSERT_TRUE(server_->WaitForCalls(1));
  process.Type("two\r");
  process.Expect("first\r\n");
  process.Expect("second\r\n");
  EXPECT_EQ(Messages(1), "USER: one|ASSISTANT: first|USER: two");
}

TEST_F(Repl, TheTerminalEchoesAgainHoweverTheProgramEnds) {
  for (int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV}) {
    server_->Script({SayAndHang({"text"})});
    Process process = Start();
    process.Type("Hi\r");
    process.Expect("text");
    EXPECT_EQ(process.TerminalModes() & ECHO, 0u);
    process.Signal(signal);
    const unsigned modes = process.ModesAtEnd();
    EXPECT_NE(modes & ECHO, 0u) << signal;
    EXPECT_NE(modes & ICANON, 0u) << signal;
    EXPECT_EQ(process.Wait().signal, signal);
  }
  Process process = Start();
  process.Type(kCtrlD);
  EXPECT_NE(process.ModesAtEnd() & ECHO, 0u);
}

TEST_F(Repl, WordsWrapAtTheTerminalsWidth) {
  server_->Script({Say({"the quick brown f", "ox jumps over the l", "azy dog"})});
  Process process = Start({}, {}, 20);
  process.Type("Hi\r");
  process.Expect("the quick brown f");
  EXPECT_EQ(process.Expect("jumps over"), "ox\r\njumps over");
  EXPECT_EQ(process.Expect("dog"), " the lazy\r\ndog");
}

TEST_F(Repl, OnlyATerminalWraps) {
  const std::string line =
      "the quick brown fox jumps over the lazy dog and goes on for more than one line of eighty columns";
  server_->Script({Say({line})});
  EXPECT_EQ(RunSluice({"chat", "Hi", "--server", server_->address()}).out, line + "\n");
}

TEST_F(Repl, ATerminalShowsThatItWaits) {
  client::Answer slow = SayAndHang({"text"});
  slow.pause = std::chrono::milliseconds(1300);
  server_->Script({slow});
  Process process = Process::AtTerminal({"complete", "--server", server_->address(), "--prompt", "p"});
  process.Expect("waiting for the first token");
  const std::string until_text = process.Expect("text");
  EXPECT_NE(until_text.find("\r\033[K"), std::string::npos) << "and takes it away before the text";
}

}  // namespace
}  // namespace sluice::cli
