// The subcommands of `sluice`, one file each. Add* declares a subcommand and its flags; the returned function runs it
// after parsing and gives the exit code.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>

#include "client/cpp/client.h"

namespace CLI {
class App;
}

namespace sluice::cli {

struct Globals {
  std::string server = "localhost:50051";  // host:port of the gRPC port
  std::string admin = "localhost:8002";    // of the admin port, for load and drain
  double timeout_s = 0;                    // 0: the subcommand's own default, which is none for most

  client::CallOptions Deadline(double default_s = 0) const {
    const double seconds = timeout_s > 0 ? timeout_s : default_s;
    client::CallOptions options;
    if (seconds > 0) options.timeout = std::chrono::milliseconds(std::max(int64_t{1}, int64_t(seconds * 1000)));
    return options;
  }
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
Command AddCompletion(CLI::App& app);  // last: it lists what the app has

}  // namespace sluice::cli
