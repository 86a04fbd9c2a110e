// sluice chat: one turn with a prompt or text on stdin, else a conversation at the terminal.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cli/chat_session.h"
#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/repl.h"
#include "client/cli/terminal.h"
#include "client/cli/text_source.h"

namespace sluice::cli {
namespace {

struct Flags {
  GenerateFlags generate;
  std::string prompt, system, template_kwargs;
  bool go_on = false;
};

int Run(const Flags& flags, const TextOptions& prompt_options, const Globals& globals) {
  ChatSession session(client::Client::Create(globals.server), flags.generate, globals.Deadline());
  const std::string last = StateFile("last_chat.json");
  if (flags.go_on) {
    if (absl::Status status = session.Load(last); !status.ok()) {
      return UsageError(absl::StrCat("--continue: no last conversation: ", status.message()));
    }
  }
  if (!flags.system.empty()) session.SetSystem(flags.system);
  session.SetTemplateKwargs(flags.template_kwargs);
  session.flags().wrap_words = true;
  int code = kExitOk;
  const bool given = prompt_options.word->count() + prompt_options.flag->count() > 0;
  if (!given && StdinIsTerminal()) {
    code = RunRepl(session, globals.server);
  } else {
    const std::optional<std::string> prompt = ReadText(prompt_options, flags.prompt, "message", false);
    if (!prompt) return kExitUsage;
    code = session.Ask(*prompt).code;
  }
  // Only a convenience: without a home there is just nothing to go on with.
  if (session.HasAnswer() && !last.empty()) (void)session.Save(last);
  return code;
}

}  // namespace

Command AddChat(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("chat", "Ask one question, or have a conversation");
  const TextOptions prompt = AddText(*command, "prompt", flags->prompt,
                                     "The message to answer (default: all of stdin; on a terminal, a conversation)");
  command->add_option("-s,--system", flags->system, "System prompt: how the model should behave")
      ->type_name("TEXT")
      ->check(CheckUtf8);
  command
      ->add_option("--chat-template-kwargs", flags->template_kwargs,
                   "Variables for the chat template, a JSON object: '{\"enable_thinking\": false}'")
      ->type_name("JSON")
      ->check(CheckUtf8);
  command->add_flag("-c,--continue", flags->go_on, "Continue the last conversation");
  flags->generate.AddTo(*command);
  return [flags, prompt, &globals] { return Run(*flags, prompt, globals); };
}

}  // namespace sluice::cli
