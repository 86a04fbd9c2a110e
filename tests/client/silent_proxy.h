// A TCP proxy in front of a server that can fall silent as a network does: connections stay, nothing passes any more.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace sluice::client {

class SilentProxy {
 public:
  explicit SilentProxy(const std::string& server);  // HOST:PORT, an IPv4 address of this machine
  ~SilentProxy();

  std::string address() const { return address_; }
  void FallSilent() { silent_ = true; }

 private:
  void Serve(int listener, std::string server);

  std::string address_;
  std::atomic<bool> silent_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace sluice::client
