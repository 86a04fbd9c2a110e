// sluice tokenize: text to token ids and back.
#include <CLI/CLI.hpp>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/terminal.h"
#include "client/cli/text_source.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

struct Flags {
  std::string model, text;
  std::vector<uint32_t> ids;
  bool no_special = false, json = false;
};

int Run(const Flags& flags, const TextOptions& text_options, const Globals& globals) {
  const auto client = client::Client::Create(globals.server);
  if (!flags.ids.empty()) {
    v1::DetokenizeRequest request;
    request.set_model(flags.model);
    for (uint32_t id : flags.ids) request.add_token_ids(id);
    auto response = client->Detokenize(request, globals.Deadline());
    if (!response.ok()) return Report(response.status());
    const std::string& joined = response->text();
    std::cout << (flags.json           ? nlohmann::ordered_json{{"text", joined}}.dump(2)
                  : StdoutIsTerminal() ? Printable(joined)
                                       : joined)
              << std::endl;
    return kExitOk;
  }
  v1::TokenizeRequest request;
  request.set_model(flags.model);
  const std::optional<std::string> text = ReadText(text_options, flags.text, "text", true);
  if (!text) return kExitUsage;
  request.set_text(*text);
  if (flags.no_special) request.set_parse_special(false);
  auto response = client->Tokenize(request, globals.Deadline());
  if (!response.ok()) return Report(response.status());
  if (flags.json) {
    nlohmann::ordered_json object;
    object["token_ids"] = std::vector<uint32_t>(response->token_ids().begin(), response->token_ids().end());
    std::cout << object.dump(2) << std::endl;
    return kExitOk;
  }
  for (int i = 0; i < response->token_ids_size(); ++i) {
    // A token may be part of a character; JSON's replacement character shows that.
    const nlohmann::json bytes = response->token_bytes(i);
    std::cout << response->token_ids(i) << "\t" << bytes.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  }
  std::cout.flush();
  return kExitOk;
}

}  // namespace

Command AddTokenize(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into tokens, or token ids into text");
  const TextOptions text = AddText(*command, "text", flags->text, "The text to tokenize (default: all of stdin)");
  command->add_option("--detokenize", flags->ids, "Token ids to turn back into text, separated by commas")
      ->type_name("IDS")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(WholeNumber(0, std::numeric_limits<uint32_t>::max()))
      ->transform(Decimal)
      ->excludes(text.word)
      ->excludes(text.flag);
  command->add_option("--model", flags->model, "Name of the served model (default: the only one)")
      ->envname("SLUICE_MODEL")
      ->type_name("NAME")
      ->check(CheckUtf8);
  command->add_flag("--no-special", flags->no_special, "Treat special tokens spelled out in the text as ordinary text");
  command->add_flag("--json", flags->json, "Print one JSON object");
  return [flags, text, &globals] { return Run(*flags, text, globals); };
}

}  // namespace sluice::cli
