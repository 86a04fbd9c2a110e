// sluice health: grpc.health.v1.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/model_state.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

// As in grpc_health_probe.
constexpr int kConnectionFailure = 2;
constexpr int kRpcFailure = 3;
constexpr int kUnhealthy = 4;

constexpr double kDefaultTimeoutS = 1;

// Why the server does not serve, as far as it says.
std::string Why(client::Client& client, const Globals& globals) {
  auto models = client.ListModels(globals.Deadline(kDefaultTimeoutS));
  if (models.ok() && models->models_size() > 0) {
    const std::string state = StateSentence(models->models(0).state());
    if (!state.empty()) return state;
  }
  return "the server is about to stop, or its engine makes no progress; its log says which";
}

int Run(const std::string& service, const Globals& globals) {
  client::ClientOptions client_options;
  client_options.retry_unavailable = false;
  const auto client = client::Client::Create(globals.server, client_options);
  auto status = client->CheckHealth(service, globals.Deadline(kDefaultTimeoutS));
  if (!status.ok()) {
    Report(status.status());
    return absl::IsUnavailable(status.status()) ? kConnectionFailure : kRpcFailure;
  }
  switch (*status) {
    case client::HealthStatus::kServing:
      std::cout << "SERVING" << std::endl;
      return kExitOk;
    case client::HealthStatus::kNotServing:
      std::cout << "NOT_SERVING" << std::endl;
      std::cerr << "sluice: " << Why(*client, globals) << std::endl;
      return kUnhealthy;
    case client::HealthStatus::kServiceUnknown:
      std::cerr << "sluice: the server does not know a service '" << service << "'" << std::endl;
      return kRpcFailure;
  }
  return kRpcFailure;
}

}  // namespace

Command AddHealth(CLI::App& app, const Globals& globals) {
  auto service = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("health", "Check whether the server is ready");
  command->footer(
      "--server and --timeout work with every command (sluice --help).\nExit codes: 0 serving, 2 cannot connect, 3 the "
      "call failed, 4 not serving (as grpc_health_probe).");
  command->alias("probe");
  command
      ->add_option("--service", *service, "liveness, readiness or a full service name (default: the server as a whole)")
      ->type_name("NAME")
      ->check(CheckUtf8);
  return [service, &globals] { return Run(*service, globals); };
}

}  // namespace sluice::cli
