// The `sluice` command.
#include <langinfo.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/address.h"
#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/terminal.h"
#include "client/cli/usage.h"
#include "engine/base/wrap_text.h"

namespace sluice::cli {
namespace {

// The text of models is UTF-8 whatever the environment says, and so is what the line editor reads.
void UseUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// As a flag's transform: text that is no address ends the parsing with a sentence.
auto AddressOf(int default_port) {
  return CLI::Validator(
      [default_port](std::string& text) -> std::string {
        auto address = ParseAddress(text, default_port);
        if (!address.ok()) return std::string(address.status().message());
        text = *address;
        return "";
      },
      "");
}

void AddGlobals(CLI::App& app, Globals& globals) {
  app.add_option("--server", globals.server, "The server's gRPC port, as HOST:PORT, HOST or :PORT")
      ->envname("SLUICE_ADDR")
      ->type_name("ADDRESS")
      ->capture_default_str()
      ->transform(AddressOf(50051));
  app.add_option("--admin", globals.admin, "The server's admin port, for load and drain")
      ->envname("SLUICE_ADMIN_ADDR")
      ->type_name("ADDRESS")
      ->capture_default_str()
      ->transform(AddressOf(8002));
  app.add_option("--timeout", globals.timeout_s, "Give up after this many seconds (default: never; health: 1, load: 5)")
      ->type_name("SECONDS")
      ->check(Number(0.001, 1e6));
}

// CLI11's, without the list of flags that exclude each other: an error says that.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text;
    if (option->get_type_size() != 0) {
      if (!option->get_type_name().empty()) text += " " + option->get_type_name();
      if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
      if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    }
    if (!option->get_envname().empty()) text += " (or " + option->get_envname() + ")";
    return text;
  }
};

// CLI11 sets helps in two columns and does not wrap the second.
void WrapHelp(CLI::App& app) {
  constexpr size_t kColumns = 80, kFirstColumn = 30;
  for (CLI::Option* option : app.get_options()) {
    option->description(WrapText(option->get_description(), kColumns - kFirstColumn));
  }
  app.footer(WrapText(app.get_footer(), kColumns));
  for (CLI::App* command : app.get_subcommands(nullptr)) WrapHelp(*command);
}

// CLI11 takes the argument that follows for the value of `--flag=`.
std::vector<std::string> SplitEmptyValues(const CLI::App& app, std::vector<std::string> arguments) {
  std::vector<std::string> result;
  bool flags = true;
  for (std::string& argument : arguments) {
    flags = flags && argument != "--";
    const std::string name = argument.substr(0, argument.size() - 1);
    bool known = app.get_option_no_throw(name) != nullptr;
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
      known = known || command->get_option_no_throw(name) != nullptr;
    }
    if (flags && known && argument.size() > 3 && argument.rfind("--", 0) == 0 && argument.back() == '=') {
      result.insert(result.end(), {name, ""});
    } else {
      result.push_back(std::move(argument));
    }
  }
  return result;
}

int Main(int argc, char** argv) {
  UseUtf8();
  // What matters of gRPC's own log comes back as a status.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  CLI::App app{"Command-line client for the Sluice model server", "sluice"};
  app.formatter(std::make_shared<HelpFormatter>());  // before the commands, which take it over
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION, "Print the version and exit");
  app.require_subcommand(0, 1);
  app.fallthrough();  // the flags here may stand after the subcommand
  app.footer(
      "--server, --admin and --timeout work with every command (sluice --help).\n"
      "Exit codes: 0 success, 2 wrong usage, 64 + gRPC code for errors, 130 interrupted.");

  Globals globals;
  AddGlobals(app, globals);
  const std::vector<std::pair<std::string, Command>> commands = {
      {"complete", AddComplete(app, globals)}, {"chat", AddChat(app, globals)},
      {"tokenize", AddTokenize(app, globals)}, {"models", AddModels(app, globals)},
      {"health", AddHealth(app, globals)},     {"load", AddLoad(app, globals)},
      {"bench", AddBench(app, globals)},       {"inspect", AddInspect(app)},
      {"cancel", AddCancel(app, globals)},     {"drain", AddDrain(app, globals)},
      {"completion", AddCompletion(app)},
  };
  WrapHelp(app);
  const std::vector<std::string> arguments = SplitEmptyValues(app, {argv + 1, argv + argc});
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    return UsageError(ExplainUsage(app, error, arguments));
  }
  for (const auto& [name, run] : commands) {
    if (!app.got_subcommand(name)) continue;
    const int code = run();
    std::cout.flush();
    if (std::cout || code != kExitOk) return code;
    std::cerr << "sluice: cannot write to stdout" << std::endl;
    return kExitFailed;
  }
  return UsageError("no command; sluice --help lists them");
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) { return sluice::cli::Main(argc, argv); }
