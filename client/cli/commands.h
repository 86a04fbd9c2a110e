// The subcommands of `sluice`, one file each. Add* declares a subcommand and its flags; the returned function runs it
// after parsing and gives the exit code.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace sluice::cli {

struct Globals {
  std::string server;  // host:port of the gRPC port (of the admin port for load and drain: `admin`)
  std::string admin;
  double timeout_s = 0;  // 0: none
};

using Command = std::function<int()>;

Command AddComplete(CLI::App& app, const Globals& globals);
Command AddChat(CLI::App& app, const Globals& globals);
Command AddTokenize(CLI::App& app, const Globals& globals);
Command AddModels(CLI::App& app, const Globals& globals);
Command AddHealth(CLI::App& app, const Globals& globals);
Command AddLoad(CLI::App& app, const Globals& globals);
Command AddBench(CLI::App& app, const Globals& globals);
Command AddInspect(CLI::App& app);
Command AddCancel(CLI::App& app, const Globals& globals);
Command AddDrain(CLI::App& app, const Globals& globals);

}  // namespace sluice::cli
