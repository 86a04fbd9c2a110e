#include "client/cli/chat_session.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "client/cli/repl.h"

namespace sluice::cli {
namespace {

// Never asks anything, so its client never connects.
ChatSession NewSession() { return ChatSession(client::Client::Create("127.0.0.1:1"), {}, {}); }

std::string Command(ChatSession& session, const std::string& line) {
  bool leave = false;
  std::string printed = RunReplCommand(session, line, &leave);
  EXPECT_FALSE(leave) << line;
  return printed;
}

class Files : public testing::Test {
 protected:
  std::string Path(const std::string& name) { return testing::TempDir() + "/sluice_chat_session_test_" + name; }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
};

TEST(ReplCommand, SetChangesTheNextAnswer) {
  ChatSession session = NewSession();
  EXPECT_EQ(Command(session, "/set max_tokens 12"), "");
  EXPECT_EQ(Command(session, "/set temperature 0.5"), "");
  EXPECT_EQ(Command(session, "/set top_p 0.25"), "");
  EXPECT_EQ(Command(session, "/set top_k -1"), "");
  EXPECT_EQ(Command(session, "/set min_p 0.125"), "");
  EXPECT_EQ(Command(session, "/set seed 18446744073709551615"), "");
  EXPECT_EQ(Command(session, "/set stop a b\\n"), "");
  EXPECT_EQ(Command(session, "/set stats on"), "");
  const GenerateFlags& flags = session.flags();
  EXPECT_EQ(flags.max_tokens, 12u);
  EXPECT_EQ(flags.temperature, 0.5f);
  EXPECT_EQ(flags.top_p, 0.25f);
  EXPECT_EQ(flags.top_k, -1);
  EXPECT_EQ(flags.min_p, 0.125f);
  EXPECT_EQ(flags.seed, 18446744073709551615u);
  EXPECT_EQ(flags.stop, std::vector<std::string>{"a b\n"});
  EXPECT_TRUE(flags.stats);
}

TEST(ReplCommand, DefaultUnsets) {
  ChatSession session = NewSession();
  for (const char* name : {"max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop"}) {
    EXPECT_EQ(Command(session, std::string("/set ") + name + " 1"), "");
    EXPECT_EQ(Command(session, std::string("/set ") + name + " default"), "");
  }
  v1::GenerateOptions options;
  session.flags().Fill(&options);
  EXPECT_EQ(options.ByteSizeLong(), 0u);
}

TEST(ReplCommand, RefusesWhatIsNoValueAndKeepsTheOldOne) {
  ChatSession session = NewSession();
  Command(session, "/set max_tokens 12");
  EXPECT_EQ(Command(session, "/set max_tokens -3"),
            "max_tokens: found '-3', expected a whole number from 1 to 4294967295\n");
  EXPECT_EQ(Command(session, "/set max_tokens many"),
            "max_tokens: found 'many', expected a whole number from 1 to 4294967295\n");
  EXPECT_EQ(Command(session, "/set stats maybe"), "stats: found 'maybe', expected one of on, off, default\n");
  EXPECT_NE(Command(session, "/set speed 9").find("no setting speed"), std::string::npos);
  EXPECT_EQ(Command(session, "/set temprature 1"), "there is no setting temprature; did you mean temperature?\n");
  EXPECT_NE(Command(session, "/set").find("usage"), std::string::npos);
  EXPECT_NE(Command(session, "/set seed").find("usage"), std::string::npos);
  EXPECT_EQ(session.flags().max_tokens, 12u);
}

TEST(ReplCommand, SetRefusesWhatTheServerWouldRefuse) {
  ChatSession session = NewSession();
  EXPECT_EQ(Command(session, "/set temperature 5"), "temperature: found '5', expected a number from 0 to 2\n");
  EXPECT_EQ(Command(session, "/set top_p 0"), "top_p: found '0', expected a number above 0 and up to 1\n");
  EXPECT_EQ(Command(session, "/set min_p 2"), "min_p: found '2', expected a number from 0 to 1\n");
  EXPECT_EQ(Command(session, "/set top_k -2"), "top_k: found '-2', expected a whole number from -1 to 2147483647\n");
  EXPECT_EQ(Command(session, "/set max_tokens 0"),
            "max_tokens: found '0', expected a whole number from 1 to 4294967295\n");
  EXPECT_EQ(Command(session, "/set temperature nan"), "temperature: found 'nan', expected a number from 0 to 2\n");
  v1::GenerateOptions options;
  session.flags().Fill(&options);
  EXPECT_EQ(options.ByteSizeLong(), 0u);
}

TEST(ReplCommand, SystemIsTheFirstMessage) {
  ChatSession session = NewSession();
  EXPECT_EQ(Command(session, "/set system You are  terse."), "");
  ASSERT_EQ(session.messages().size(), 1u);
  EXPECT_EQ(session.messages()[0].role(), v1::ROLE_SYSTEM);
  EXPECT_EQ(session.messages()[0].content(0).text(), "You are  terse.");
  Command(session, "/set system Other");
  ASSERT_EQ(session.messages().size(), 1u);
  EXPECT_EQ(session.messages()[0].content(0).text(), "Other");
  Command(session, "/clear");
  EXPECT_EQ(session.messages().size(), 1u) << "clear keeps it";
  Command(session, "/set system default");
  EXPECT_TRUE(session.messages().empty());
}

TEST(ReplCommand, ShowTellsSettingsAndConversation) {
  ChatSession session = NewSession();
  Command(session, "/set temperature 0.5");
  Command(session, "/set system Be brief");
  const std::string shown = Command(session, "/show");
  for (const char* line : {"temperature 0.5\n", "max_tokens default\n", "stats off\n", "SYSTEM: Be brief\n"}) {
    EXPECT_NE(shown.find(line), std::string::npos) << line << " in\n" << shown;
  }
}

TEST(ReplCommand, ExitQuitAndByeLeave) {
  for (const char* command : {"/exit", "/quit", "/bye"}) {
    ChatSession session = NewSession();
    bool leave = false;
    EXPECT_EQ(RunReplCommand(session, command, &leave), "");
    EXPECT_TRUE(leave) << command;
  }
}

TEST(ReplCommand, UnknownOnesAreNamed) {
  ChatSession session = NewSession();
  EXPECT_NE(Command(session, "/dance").find("/dance"), std::string::npos);
  EXPECT_NE(Command(session, "/").find("no command"), std::string::npos);
  EXPECT_EQ(Command(session, "/claer"), "there is no command /claer; did you mean /clear?\n");
  const std::string help = Command(session, "/help");
  for (const char* command : {"/set", "/show", "/clear", "/save", "/load", "/exit"}) {
    EXPECT_NE(help.find(command), std::string::npos) << command;
  }
}

TEST_F(Files, ASavedConversationIsTheSameWhenLoaded) {
  ChatSession session = NewSession();
  ASSERT_TRUE(session
                  .Load(Write("in", R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content":
                      "Grüße \"世界\"\n"}, {"role": "assistant", "content": ""}, {"role": "developer", "content": "d"}]})"))
                  .ok());
  EXPECT_EQ(Command(session, "/save  " + Path("out") + " "), "");
  ChatSession other = NewSession();
  EXPECT_EQ(Command(other, "/load " + Path("out")), "");
  ASSERT_EQ(other.messages().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(other.messages()[i].SerializeAsString(), session.messages()[i].SerializeAsString());
  }
  EXPECT_EQ(other.messages()[1].content(0).text(), "Grüße \"世界\"\n");
  EXPECT_EQ(other.messages()[3].role(), v1::ROLE_DEVELOPER);
}

TEST_F(Files, OnlyTheOwnerMayReadASavedConversation) {
  ChatSession session = NewSession();
  ASSERT_TRUE(session.Save(Path("private")).ok());
  struct stat info {};
  ASSERT_EQ(stat(Path("private").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(Files, WhatCannotBeLoadedIsNamedAndChangesNothing) {
  ChatSession session = NewSession();
  session.SetSystem("kept");
  const std::vector<std::string> broken = {
      "",
      "no json",
      "[]",
      "{}",
      R"({"messages": {}})",
      R"({"messages": [3]})",
      R"({"messages": [{"role": "user"}]})",
      R"({"messages": [{"role": "king", "content": "x"}]})",
      R"({"messages": [{"role": "user", "content": ["x"]}]})",
      R"({"messages": [{"role": 7, "content": "x"}]})",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"\xFF\"}]}",
  };
  for (const std::string& text : broken) {
    const std::string path = Write("broken", text);
    const absl::Status status = session.Load(path);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_NE(status.message().find(path), std::string::npos) << status;
  }
  EXPECT_NE(
      session.Load(Write("broken", "{\n  \"messages\": [}\n")).message().find("not valid JSON at line 2, column 16"),
      std::string::npos)
      << session.Load(Path("broken"));
  EXPECT_TRUE(absl::IsNotFound(session.Load("/nonexistent/file")));
  EXPECT_NE(Command(session, "/load /nonexistent/file").find("/nonexistent/file"), std::string::npos);
  EXPECT_NE(Command(session, "/save /nonexistent/file").find("/nonexistent/file"), std::string::npos);
  EXPECT_NE(Command(session, "/save").find("usage"), std::string::npos);
  EXPECT_FALSE(session.Load(testing::TempDir()).ok());
  ASSERT_EQ(session.messages().size(), 1u);
  EXPECT_EQ(session.messages()[0].content(0).text(), "kept");
}

}  // namespace
}  // namespace sluice::cli
