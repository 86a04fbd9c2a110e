// sluice chat: one turn with --prompt or text on stdin, else a conversation at the terminal.
#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "client/cli/chat_session.h"
#include "client/cli/commands.h"
#include "client/cli/repl.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

struct Flags {
  GenerateFlags generate;
  std::string prompt, system;
};

int Run(const Flags& flags, bool has_prompt, const Globals& globals) {
  client::CallOptions options;
  if (globals.timeout_s > 0) options.timeout = std::chrono::milliseconds(int64_t(globals.timeout_s * 1000));
  ChatSession session(client::Client::Create(globals.server), flags.generate, options);
  if (!IsValidUtf8(flags.system)) return UsageError("--system is not valid UTF-8");
  if (!flags.system.empty()) session.SetSystem(flags.system);
  if (!has_prompt && StdinIsTerminal()) return RunRepl(session);
  std::string prompt = flags.prompt;
  if (!has_prompt && !ReadStdin(&prompt)) return UsageError("the message on stdin is not valid UTF-8");
  if (!IsValidUtf8(prompt)) return UsageError("--prompt is not valid UTF-8");
  return session.Ask(prompt);
}

}  // namespace

Command AddChat(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk with the model; without --prompt and with a terminal, a conversation");
  CLI::Option* prompt = command->add_option("--prompt", flags->prompt, "One message; the answer is printed");
  command->add_option("-s,--system", flags->system, "System message");
  flags->generate.AddTo(*command);
  return [flags, prompt, &globals] { return Run(*flags, prompt->count() > 0, globals); };
}

}  // namespace sluice::cli
