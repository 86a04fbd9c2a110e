// The whole server in one object: ports, services, the model once it is there, drain and stop. Several may live in one
// process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "server/calls/model_host.h"
#include "server/options.h"

namespace sluice {

class Server {
 public:
  // Opens the ports. Health and metrics answer at once; calls answer UNAVAILABLE until Serve. An error names the flag
  // of the port that cannot be opened. `clock` outlives the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const Clock& clock = Clock::Real());
  ~Server();  // Stop()

  // Once: the model is there, calls are answered. INVALID_ARGUMENT: its engine options make no sense.
  absl::Status Serve(ModelHost host);

  // "host:port", with the port that was chosen for port 0.
  std::string grpc_address() const;
  std::string http_address() const;
  std::string admin_address() const;

  // Thread-safe and quick, each of them; they follow each other at the end of a server's life.
  void BeginLeaving();  // not ready any more, but still taking calls
  void BeginDrain();    // new calls and those that wait answer UNAVAILABLE, running ones go on

  // After BeginDrain: waits until no call is in progress and the output of all has been written, at most `timeout`,
  // less if `hurry` becomes true (asked every 20 ms). What still runs then ends with UNAVAILABLE and what it has
  // generated, within two seconds, or if the engine does not come back from its step without it, within four. True if
  // nothing had to be cut.
  bool WaitForCalls(std::chrono::milliseconds timeout, const std::function<bool()>& hurry);

  // Ends everything, metrics last; output that clients do not take within a second is lost. Idempotent; one thread
  // only. Waits for the step that is running, however long.
  void Stop();

  // To be called a few times per second: tells health whether the engine makes progress. Not OK once the engine has
  // given up, or has had work and completed no step for LifecycleOptions::watchdog_timeout and then watchdog_exit.
  absl::Status CheckEngine();

  // Once CheckEngine is not OK: new calls answer UNAVAILABLE, and those in progress end with INTERNAL (DEVICE_FAULT),
  // without the engine where need be. Returns when their clients have been told, after at most two seconds.
  void FailCalls(const absl::Status& fault);

  // What the engine's workers are at, for the log. Thread-safe.
  std::string DescribeWorkers() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
