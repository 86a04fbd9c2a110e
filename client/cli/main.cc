// The `sluice` command.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/terminal.h"

int main(int argc, char** argv) {
  using namespace sluice::cli;
  CLI::App app{"Talk to a Sluice model server", "sluice"};
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // the flags here may stand behind the subcommand

  Globals globals;
  const char* address = std::getenv("SLUICE_ADDR");
  const char* admin = std::getenv("SLUICE_ADMIN_ADDR");
  globals.server = address != nullptr && *address != '\0' ? address : "localhost:50051";
  globals.admin = admin != nullptr && *admin != '\0' ? admin : "localhost:8002";
  app.add_option("--server", globals.server, "Address of the gRPC port (environment: SLUICE_ADDR)")
      ->capture_default_str();
  app.add_option("--admin", globals.admin,
                 "Address of the admin port, for load and drain (environment: SLUICE_ADMIN_ADDR)")
      ->capture_default_str();
  app.add_option("--timeout", globals.timeout_s, "Deadline of a call in seconds (default: none; health: 1)");

  const std::vector<std::pair<std::string, Command>> commands = {
      {"complete", AddComplete(app, globals)}, {"chat", AddChat(app, globals)},
      {"tokenize", AddTokenize(app, globals)}, {"models", AddModels(app, globals)},
      {"health", AddHealth(app, globals)},     {"load", AddLoad(app, globals)},
      {"bench", AddBench(app, globals)},       {"inspect", AddInspect(app)},
      {"cancel", AddCancel(app, globals)},     {"drain", AddDrain(app, globals)},
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 prints help and version, and names the flag that is wrong.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  for (const auto& [name, run] : commands) {
    if (app.got_subcommand(name)) return run();
  }
  return kExitUsage;
}
