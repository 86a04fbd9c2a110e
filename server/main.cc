// sluice-server: flags -> ports -> model -> serve until a signal -> drain.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/log.h"
#include "engine/io/model_path.h"
#include "engine/model/summary.h"
#include "engine/runtime/open_device.h"
#include "server/library_log.h"
#include "server/lifecycle.h"
#include "server/load_guard.h"
#include "server/load_host.h"
#include "server/log_writer.h"
#include "server/net/acceptor.h"
#include "server/options.h"
#include "server/server.h"

namespace sluice {
namespace {

constexpr int kUsageError = 2;

int Complain(const absl::Status& status, int exit_code) {
  FlushLog();  // what came before stands before
  std::fprintf(stderr, "sluice-server: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

LogLevel LevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

int Run(int argc, char** argv) {
  absl::StatusOr<ParsedOptions> parsed = ParseOptions(argc, argv);
  if (!parsed.ok()) return Complain(parsed.status(), kUsageError);
  if (parsed->text.has_value()) return std::fputs(parsed->text->c_str(), stdout) < 0;
  const ServerOptions& options = parsed->options;
  if (absl::Status status = CheckDevice(options.model.device); !status.ok()) return Complain(status, kUsageError);
  if (absl::Status status = CheckModelPath(options.model.path); !status.ok()) {
    return Complain(absl::Status(status.code(), absl::StrCat("--model: ", status.message())), 1);
  }
  SetLogLevel(LevelOf(options.log_level));

  RaiseDescriptorLimit();
  SignalWatcher signals;
  auto server = Server::Start(options);
  if (!server.ok()) return Complain(server.status(), 1);
  LogInfo(absl::StrCat("loading ", options.model.path));
  absl::StatusOr<ModelHost> host = [&] {
    const LoadGuard guard;
    return LoadModelHost(options);
  }();
  if (!host.ok()) return Complain(host.status(), 1);
  LogInfo(absl::StrFormat(
      "%s: %s, %s of weights (stored as %s), %s activations, %s KV cache of %s: %d blocks of %d tokens, context %d",
      options.model.names.front(), host->architecture, FormatBytes(int64_t(host->weight_bytes)), host->weight_type,
      host->activations, FormatBytes(int64_t(host->kv_bytes)), host->kv_type, host->engine.num_blocks,
      host->engine.block_size, host->engine.max_model_len));
  LogInfo(absl::StrFormat("model loaded in %.2f s", host->load_seconds));
  if (absl::Status status = (*server)->Serve(*std::move(host)); !status.ok()) return Complain(status, 1);

  signals.Arm();
  std::printf("listening grpc=%s http=%s admin=%s\n", (*server)->grpc_address().c_str(),
              (*server)->http_address().c_str(), (*server)->admin_address().c_str());
  std::fflush(stdout);
  return RunUntilSignal(server->get(), options.lifecycle, signals);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  // Before any other thread, and until all that log have gone or are left behind.
  sluice::LogWriter log(STDERR_FILENO);
  sluice::SetLogSink(&log);
  sluice::FlushLogOnCrash();
  sluice::LogLibrariesThroughOurs();
  const int exit_code = sluice::Run(argc, argv);
  log.Flush();
  sluice::SetLogSink(nullptr);
  return exit_code;
}
