// sluice chat: one turn with --prompt or text on stdin, else a conversation at the terminal.
#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/chat_session.h"
#include "client/cli/commands.h"
#include "client/cli/repl.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

struct Flags {
  GenerateFlags generate;
  std::string prompt, system;
  bool go_on = false;
};

int Run(const Flags& flags, bool has_prompt, const Globals& globals) {
  ChatSession session(client::Client::Create(globals.server), flags.generate, globals.Deadline());
  const std::string last = StateFile("last_chat.json");
  if (flags.go_on) {
    if (absl::Status status = session.Load(last); !status.ok()) {
      return UsageError(absl::StrCat("--continue: no last conversation: ", status.message()));
    }
  }
  if (!flags.system.empty()) session.SetSystem(flags.system);
  int code = kExitOk;
  if (!has_prompt && StdinIsTerminal()) {
    RunRepl(session);
  } else {
    std::string prompt = flags.prompt;
    if (!has_prompt && !ReadStdin(&prompt)) return UsageError("the message on stdin is not valid UTF-8");
    code = session.Ask(prompt);
  }
  // Only a convenience: without a home there is just nothing to go on with.
  if (session.HasAnswer() && !last.empty()) (void)session.Save(last);
  return code;
}

}  // namespace

Command AddChat(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk with the model: one message by --prompt or stdin, at a terminal a conversation");
  CLI::Option* prompt =
      command->add_option("--prompt", flags->prompt, "One message; the answer is printed")->check(CheckUtf8);
  command->add_option("-s,--system", flags->system, "System message")->check(CheckUtf8);
  command->add_flag("-c,--continue", flags->go_on, "Go on with the last conversation");
  flags->generate.AddTo(*command);
  return [flags, prompt, &globals] { return Run(*flags, prompt->count() > 0, globals); };
}

}  // namespace sluice::cli
