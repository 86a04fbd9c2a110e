// sluice cancel and sluice drain.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {

Command AddCancel(CLI::App& app, const Globals& globals) {
  auto id = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("cancel", "Stop a request in progress");
  command->add_option("REQUEST_ID", *id, "The request's server_request_id, as in the first event of --jsonl")
      ->type_name("")
      ->required()
      ->check(CheckUtf8);
  return
      [id, &globals] { return Report(client::Client::Create(globals.server)->CancelRequest(*id, globals.Deadline())); };
}

Command AddDrain(CLI::App& app, const Globals& globals) {
  app.add_subcommand("drain", "Refuse new requests, finish the rest (admin port)");
  return [&globals] {
    auto response = client::Client::Create(globals.admin)->Drain(globals.Deadline());
    if (!response.ok()) return Report(response.status());
    const uint32_t n = response->running();
    std::cerr << "sluice: draining: new requests are refused; " << n
              << (n == 1 ? " sequence still runs" : " sequences still run") << std::endl;
    return kExitOk;
  };
}

}  // namespace sluice::cli
