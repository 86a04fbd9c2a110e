// The program itself, as a child, with a tiny model.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

class Program {
 public:
  // With more `flags`; returns when it listens. Its stderr is a pipe that ReadLog alone reads.
  explicit Program(const std::vector<std::string>& flags);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::string& address() const { return address_; }  // of gRPC
  int port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }
  // What has come, until nothing comes for half a second.
  std::string ReadLog() const;
  // The most memory that it has had at a time.
  int64_t PeakBytes() const;
  // The exit code after SIGTERM; -1 if it does not end in time.
  int Terminate(std::chrono::seconds patience);

 private:
  pid_t pid_ = -1;
  int log_ = -1;
  std::string address_;
};

}  // namespace sluice
