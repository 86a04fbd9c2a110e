// The real sluice-server as a child process on free ports.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace sluice {

class ServerProcess {
 public:
  // Null if the model file is not on this machine (then the test is skipped). Aborts the test program if the server
  // does not come up within 60 s.
  static std::unique_ptr<ServerProcess> Start(const std::string& binary, const std::vector<std::string>& flags);
  // SIGTERM; the server must end with 0 within 60 s, or the program aborts.
  ~ServerProcess();

  const std::string& grpc() const { return grpc_; }  // host:port
  const std::string& http() const { return http_; }
  const std::string& admin() const { return admin_; }
  pid_t pid() const { return pid_; }
  // VmRSS in KiB.
  long ResidentKib() const;

 private:
  ServerProcess() = default;
  pid_t pid_ = -1;
  std::string grpc_, http_, admin_;
};

}  // namespace sluice
