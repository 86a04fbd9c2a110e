// The `sluice` command.
#include <langinfo.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

// The text of models is UTF-8 whatever the environment says, and so is what the line editor reads.
void UseUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

void AddGlobals(CLI::App& app, Globals& globals) {
  app.add_option("--server", globals.server, "Address of the gRPC port")->envname("SLUICE_ADDR")->capture_default_str();
  app.add_option("--admin", globals.admin, "Address of the admin port, for load and drain")
      ->envname("SLUICE_ADMIN_ADDR")
      ->capture_default_str();
  app.add_option("--timeout", globals.timeout_s, "Deadline of each call in seconds (default: none; health: 1, load: 5)")
      ->check(CLI::Range(0.001, 1e6));
}

int Main(int argc, char** argv) {
  UseUtf8();
  // What matters of gRPC's own log comes back as a status.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  CLI::App app{"Talk to a Sluice model server", "sluice"};
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(0, 1);
  app.fallthrough();  // the flags here may stand behind the subcommand
  app.footer(
      "--server, --admin and --timeout go with every command (sluice --help).\n"
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 prints help and version, and names the flag that is wrong.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
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
