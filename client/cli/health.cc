// sluice health: grpc.health.v1.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

// As in grpc_health_probe.
constexpr int kConnectionFailure = 2;
constexpr int kRpcFailure = 3;
constexpr int kUnhealthy = 4;

int Run(const std::string& service, const Globals& globals) {
  constexpr double kDefaultTimeoutS = 1;
  client::ClientOptions client_options;
  client_options.retry_unavailable = false;
  auto status =
      client::Client::Create(globals.server, client_options)->CheckHealth(service, globals.Deadline(kDefaultTimeoutS));
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
  CLI::App* command = app.add_subcommand("health", "Ask whether the server serves");
  command->footer("Exit codes: 0 serving, 2 cannot connect, 3 the call failed, 4 not serving (as grpc_health_probe).");
  command->alias("probe");
  command
      ->add_option("--service", *service, "liveness, readiness or a full service name (default: the server as a whole)")
      ->check(CheckUtf8);
  return [service, &globals] { return Run(*service, globals); };
}

}  // namespace sluice::cli
