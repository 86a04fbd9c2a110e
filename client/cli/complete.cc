// sluice complete: continue a prompt.
#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/answer.h"
#include "client/cli/commands.h"
#include "client/cli/generate_options.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

struct Flags {
  GenerateFlags generate;
  std::string prompt;
  std::vector<uint32_t> prompt_ids;
  bool no_special = false;
};

int Run(const Flags& flags, bool has_prompt, const Globals& globals) {
  v1::StreamCompleteRequest request;
  request.set_model(flags.generate.model);
  request.set_request_id(flags.generate.request_id);
  if (!flags.prompt_ids.empty()) {
    for (uint32_t id : flags.prompt_ids) request.mutable_prompt_ids()->add_ids(id);
  } else {
    std::string prompt = flags.prompt;
    if (!has_prompt) {
      if (StdinIsTerminal()) return UsageError("no prompt: give --prompt, --prompt-ids or text on stdin");
      if (!ReadStdin(&prompt)) return UsageError("the prompt on stdin is not valid UTF-8");
    }
    request.set_prompt(prompt);
    if (flags.no_special) request.set_parse_special(false);
  }
  flags.generate.Fill(request.mutable_options());
  const auto client = client::Client::Create(globals.server);
  client::Generation generation;
  return RunStream(
      [&](client::StreamHandler handler) {
        return client->StreamComplete(request, std::move(handler), globals.Deadline());
      },
      flags.generate, &generation);
}

}  // namespace

Command AddComplete(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("complete", "Continue a prompt: --prompt, --prompt-ids or text on stdin");
  CLI::Option* prompt = command->add_option("--prompt", flags->prompt, "Text to continue")->check(CheckUtf8);
  command->add_option("--prompt-ids", flags->prompt_ids, "Token ids to continue, separated by commas")
      ->delimiter(',')
      ->excludes(prompt);
  command->add_flag("--no-special", flags->no_special, "Special tokens spelled out in the prompt are ordinary text");
  flags->generate.AddTo(*command);
  return [flags, prompt, &globals] { return Run(*flags, prompt->count() > 0, globals); };
}

}  // namespace sluice::cli
