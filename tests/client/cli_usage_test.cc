// What the real binary makes of its command line: where texts come from, and what it says about mistakes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"

namespace sluice::cli {
namespace {

using client::FakeServer;
using client::Say;

class Usage : public testing::Test {
 protected:
  Output Run(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {"--server", server_->address(), "--admin", server_->address()});
    return RunSluice(arguments, input);
  }
  // The prompt or message that the last call brought.
  std::string Asked() {
    const client::Call call = server_->calls().back();
    return call.method == "StreamChat" ? call.chat.messages(call.chat.messages_size() - 1).content(0).text()
                                       : call.complete.prompt();
  }
  // The whole of stderr, for a run that must fail as wrong usage.
  std::string Refused(const std::vector<std::string>& arguments, const std::string& input = "") {
    const size_t calls = server_->calls().size();
    const Output output = Run(arguments, input);
    EXPECT_EQ(output.code, 2) << output.err;
    EXPECT_EQ(output.out, "");
    EXPECT_EQ(server_->calls().size(), calls) << "nothing was asked";
    return output.err;
  }

  const std::unique_ptr<FakeServer> server_ = FakeServer::Start();
};

// ---- where the text comes from

TEST_F(Usage, TheTextMayStandBehindTheCommand) {
  for (const char* command : {"complete", "chat"}) {
    EXPECT_EQ(Run({command, "Hello there"}).out, "ok\n");
    EXPECT_EQ(Asked(), "Hello there");
    EXPECT_EQ(Run({command, "--max-tokens", "5", "Hi", "--temperature", "0"}).out, "ok\n");
    EXPECT_EQ(Asked(), "Hi");
  }
  EXPECT_EQ(Run({"tokenize", "hi"}).out, "104\t\"h\"\n105\t\"i\"\n");
}

TEST_F(Usage, TextsBehindTheCommandArriveAsTyped) {
  for (const char* text : {"[INST] hi [/INST]", "[a,b]", "-1 + 2", "-5", "\"quoted\"", "a\\nb", "", "{}", "Grüße 世界",
                           "chat", "bench", "two\nlines", " spaces "}) {
    EXPECT_EQ(Run({"complete", text}).out, "ok\n") << text;
    EXPECT_EQ(Asked(), text);
  }
  for (const char* text : {"-n", "--json", "-x y", "--", "- a list", "-c ontinue", "++"}) {
    EXPECT_EQ(Run({"chat", "--", text}).out, "ok\n") << text;
    EXPECT_EQ(Asked(), text);
  }
}

TEST_F(Usage, ATextThatLooksLikeAFlagSaysHowToGiveIt) {
  EXPECT_EQ(Refused({"chat", "-could you help?"}),
            "sluice: '-could you help?' begins with '-', as flags do; put -- before a text like that\n");
}

TEST_F(Usage, ADashMeansStdin) {
  EXPECT_EQ(Run({"complete", "-"}, "from stdin\n").out, "ok\n");
  EXPECT_EQ(Asked(), "from stdin");
}

TEST_F(Usage, TwoTextsAreRefused) {
  EXPECT_EQ(Refused({"complete", "a", "b"}),
            "sluice: found 'b', expected nothing more; quote a text that has spaces, and give it once\n");
  EXPECT_EQ(Refused({"chat", "a", "--prompt", "b"}), "sluice: found both PROMPT and --prompt, expected one of them\n");
  EXPECT_EQ(Refused({"complete", "a", "--prompt-ids", "1"}),
            "sluice: found both PROMPT and --prompt-ids, expected one of them\n");
  EXPECT_EQ(Refused({"complete", "--prompt-ids", "1", "a"}),
            "sluice: found both PROMPT and --prompt-ids, expected one of them\n");
}

TEST_F(Usage, TextOnStdinBesideAnotherIsRefusedNotDropped) {
  EXPECT_EQ(
      Refused({"complete", "Summarise:"}, "a long text\n"),
      "sluice: found a prompt after the command and text on stdin, expected one of them; with --prompt stdin is not "
      "read\n");
  EXPECT_NE(Refused({"chat", "Summarise:"}, "a long text\n").find("a message after the command"), std::string::npos);
  EXPECT_EQ(Run({"complete", "--prompt", "p"}, "the rest of a script\n").out, "ok\n") << "the flag leaves stdin alone";
  EXPECT_EQ(Asked(), "p");
  EXPECT_EQ(Run({"complete", "alone"}, "").out, "ok\n") << "a stdin that ends at once";
}

TEST_F(Usage, AnEmptyStdinIsNoText) {
  EXPECT_EQ(Refused({"chat"}),
            "sluice: found no message: stdin is empty; give it after the command, in quotes, or on stdin\n");
  EXPECT_EQ(Refused({"complete"}),
            "sluice: found no prompt: stdin is empty; give it after the command, in quotes, or on stdin\n");
  EXPECT_EQ(Refused({"complete"}, "\n").rfind("sluice: found no prompt", 0), 0u);
}

TEST_F(Usage, AFlagMayHaveAnEmptyValue) {
  EXPECT_EQ(Run({"complete", "--prompt=", "--json"}).code, 0);
  EXPECT_EQ(Asked(), "");
  EXPECT_EQ(Run({"complete", "--", "--prompt="}).code, 0);
  EXPECT_EQ(Asked(), "--prompt=");
}

// ---- mistakes

TEST_F(Usage, UnknownCommandsSuggestTheNearest) {
  EXPECT_EQ(Refused({"caht"}), "sluice: there is no command 'caht'; did you mean chat?\n");
  EXPECT_EQ(Refused({"model"}), "sluice: there is no command 'model'; did you mean models?\n");
  EXPECT_EQ(Refused({"dance"}), "sluice: there is no command 'dance'; sluice --help lists them\n");
}

TEST_F(Usage, UnknownFlagsSuggestTheNearest) {
  EXPECT_EQ(Refused({"chat", "hi", "--temprature", "1"}),
            "sluice: chat has no flag --temprature; did you mean --temperature?\n");
  EXPECT_EQ(Refused({"chat", "hi", "--max_tokens=5"}),
            "sluice: chat has no flag --max_tokens; did you mean --max-tokens?\n");
  EXPECT_EQ(Refused({"models", "--sever", "x"}), "sluice: models has no flag --sever; did you mean --server?\n");
  EXPECT_EQ(Refused({"chat", "hi", "--quantum"}),
            "sluice: chat has no flag --quantum; sluice chat --help lists them\n");
  EXPECT_EQ(Refused({"chat", "hi", "--temp", "1"}), "sluice: chat has no flag --temp; did you mean --temperature?\n");
  EXPECT_EQ(Refused({"chat", "hi", "-temperature"}).rfind("sluice: chat has no flag -temperature", 0), 0u);
  EXPECT_EQ(Refused({"--sevrer", "x"}), "sluice: there is no flag --sevrer before a command; did you mean --server?\n");
  EXPECT_EQ(Refused({"--max-tokens", "5", "chat", "hi"}),
            "sluice: --max-tokens belongs after the command: sluice chat --max-tokens\n");
}

TEST_F(Usage, ValuesSayFlagFoundAndExpected) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"chat", "p", "--max-tokens", "ten"}, "--max-tokens: found 'ten', expected a whole number from 1 to 4294967295"},
      {{"chat", "p", "--max-tokens", "-1"}, "--max-tokens: found '-1', expected a whole number from 1 to 4294967295"},
      {{"chat", "p", "--temperature", "warm"}, "--temperature: found 'warm', expected a number from 0 to 2"},
      {{"chat", "p", "--top-p", "0"}, "--top-p: found '0', expected a number above 0 and up to 1"},
      {{"chat", "p", "-n", "17"}, "--n: found '17', expected a whole number from 1 to 16"},
      {{"chat", "p", "--seed", "-1"}, "--seed: found '-1', expected a whole number from 0 to 18446744073709551615"},
      {{"chat", "p", "--stop-token-ids", "1,x"},
       "--stop-token-ids: found 'x', expected a whole number from 0 to 4294967295"},
      {{"complete", "--prompt-ids", "1,-2"}, "--prompt-ids: found '-2', expected a whole number from 0 to 4294967295"},
      {{"tokenize", "--detokenize", "1.5"}, "--detokenize: found '1.5', expected a whole number from 0 to 4294967295"},
      {{"models", "--timeout", "soon"}, "--timeout: found 'soon', expected a number from 0.001 to 1e+06"},
      {{"load", "--interval", "0"}, "--interval: found '0', expected a number from 0.05 to 3600"},
      {{"bench", "--requests", "0"}, "--requests: found '0', expected a whole number from 1 to 1000000"},
      {{"bench", "--concurrency", "many"}, "--concurrency: found 'many', expected a whole number from 1 to 4096"},
      {{"bench", "--goal-ttft", "-5"}, "--goal-ttft: found '-5', expected a number above 0 and up to 1e+09"},
      {{"inspect", "x", "--kv-dtype", "f64"}, "--kv-dtype: found 'f64', expected one of f32, f16, bf16, fp8_e4m3"},
      {{"chat", "p", "--json=maybe"}, "--json: found a value, expected none"},
      {{"chat", "p", "--max-tokens"}, "--max-tokens: found nothing after it, expected a value"},
      {{"chat", "p", "--max-tokens", "1", "--max-tokens", "2"},
       "--max-tokens: found more than one value, expected one"},
      {{"chat", "p", "--json", "--jsonl"}, "found both --json and --jsonl, expected one of them"},
      {{"models", "--server", "a b"},
       "--server: found 'a b', expected host:port, such as localhost:50051, 10.0.0.7:50051, [::1]:50051 or "
       "dns:///name:50051"},
      {{"load", "--admin", "https://h"},
       "--admin: found 'https://h', expected an address without TLS: it is not supported here; a proxy in between can "
       "speak it"},
  };
  for (const auto& [arguments, said] : cases) EXPECT_EQ(Refused(arguments), "sluice: " + said + "\n");
}

TEST_F(Usage, LeadingZerosAreDecimal) {
  Run({"complete", "p", "--max-tokens", "010", "--seed", "0099"});
  EXPECT_EQ(server_->calls().back().complete.options().max_tokens(), 10u);
  EXPECT_EQ(server_->calls().back().complete.options().seed(), 99u);
}

TEST_F(Usage, AddressesMeanWhatPeopleMean) {
  const std::string port = server_->address().substr(server_->address().rfind(':') + 1);
  for (const std::string& address : {"127.0.0.1:" + port, "http://127.0.0.1:" + port, "http://localhost:" + port + "/",
                                     ":" + port, port, "dns:///127.0.0.1:" + port}) {
    EXPECT_EQ(RunSluice({"complete", "p", "--server", address}).out, "ok\n") << address;
    EXPECT_EQ(RunSluice({"complete", "p"}, "", {{"SLUICE_ADDR", address}}).out, "ok\n") << address;
    EXPECT_EQ(RunSluice({"load", "--once", "--admin", address}).code, 0) << address;
  }
  const Output bad = RunSluice({"models"}, "", {{"SLUICE_ADDR", "a b"}});
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(bad.err.rfind("sluice: --server: found 'a b'", 0), 0u) << bad.err;
}

TEST_F(Usage, EveryErrorBeginsWithTheProgramsName) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"dance"},
                                             {"chat"},
                                             {"chat", "--bogus"},
                                             {"chat", "p", "--n", "0"},
                                             {"cancel"},
                                             {"cancel", "unknown"},
                                             {"inspect"},
                                             {"inspect", "/nonexistent"},
                                             {"tokenize", "--detokenize", ""},
                                             {"bench", "--model", "nobody"},
                                             {"chat", "p", "-c"},
                                             {"health", "--service", "nobody"},
                                             {"bench", "--prompt-file", "/nonexistent"}}) {
    const Output output = Run(arguments);
    EXPECT_NE(output.code, 0);
    EXPECT_EQ(output.err.rfind("sluice: ", 0), 0u) << output.err;
    EXPECT_EQ(output.out, "");
  }
}

TEST_F(Usage, InspectSaysWhatToGiveInsteadOfAName) {
  const Output output = Run({"inspect", "meta-llama/Llama-3.1-8B"});
  EXPECT_EQ(output.code, 64 + 5);
  EXPECT_NE(output.err.find("hf download"), std::string::npos) << output.err;
}

}  // namespace
}  // namespace sluice::cli
