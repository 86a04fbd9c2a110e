// sluice complete: continue a prompt.
#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <optional>

#include "client/cli/answer.h"
#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/generate_options.h"
#include "client/cli/terminal.h"
#include "client/cli/text_source.h"

namespace sluice::cli {
namespace {

struct Flags {
  GenerateFlags generate;
  std::string prompt;
  std::vector<uint32_t> prompt_ids;
  bool no_special = false;
};

int Run(const Flags& flags, const TextOptions& prompt_options, const Globals& globals) {
  v1::StreamCompleteRequest request;
  request.set_model(flags.generate.model);
  request.set_request_id(flags.generate.request_id);
  if (!flags.prompt_ids.empty()) {
    for (uint32_t id : flags.prompt_ids) request.mutable_prompt_ids()->add_ids(id);
  } else {
    const std::optional<std::string> prompt = ReadText(prompt_options, flags.prompt, "prompt", false);
    if (!prompt) return kExitUsage;
    request.set_prompt(*prompt);
    if (flags.no_special) request.set_parse_special(false);
  }
  flags.generate.Fill(request.mutable_options());
  const auto client = client::Client::Create(globals.server);
  return RunStream(
             [&](client::StreamHandler handler) {
               return client->StreamComplete(request, std::move(handler), globals.Deadline());
             },
             flags.generate)
      .code;
}

}  // namespace

Command AddComplete(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("complete", "Continue a text");
  const TextOptions prompt = AddText(*command, "prompt", flags->prompt, "The text to continue (default: all of stdin)");
  command->add_option("--prompt-ids", flags->prompt_ids, "Token ids to continue, separated by commas")
      ->type_name("IDS")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(WholeNumber(0, std::numeric_limits<uint32_t>::max()))
      ->transform(Decimal)
      ->excludes(prompt.word)
      ->excludes(prompt.flag);
  command->add_flag("--no-special", flags->no_special,
                    "Treat special tokens spelled out in the prompt as ordinary text");
  flags->generate.AddTo(*command);
  return [flags, prompt, &globals] { return Run(*flags, prompt, globals); };
}

}  // namespace sluice::cli
