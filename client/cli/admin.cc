// sluice cancel and sluice drain.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {

Command AddCancel(CLI::App& app, const Globals& globals) {
  auto id = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("cancel", "Stop a call in progress");
  command->add_option("request_id", *id, "The caller's request id or the server's")->required()->check(CheckUtf8);
  return
      [id, &globals] { return Report(client::Client::Create(globals.server)->CancelRequest(*id, globals.Deadline())); };
}

Command AddDrain(CLI::App& app, const Globals& globals) {
  app.add_subcommand("drain", "Finish what runs, refuse what is new (admin port)");
  return [&globals] {
    auto response = client::Client::Create(globals.admin)->Drain(globals.Deadline());
    if (!response.ok()) return Report(response.status());
    std::cout << "draining, " << response->running() << " sequences still run" << std::endl;
    return kExitOk;
  };
}

}  // namespace sluice::cli
