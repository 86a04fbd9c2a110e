// A client's plain socket, so that the bytes, the source address and the pace are ours.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include <chrono>
#include <string>

#include "server/net/socket_address.h"
#include "server/net/unique_fd.h"

namespace sluice {

class RawSocket {
 public:
  // Connects to 127.0.0.1:`port` from `source`, an address of 127.0.0.0/8. A small `receive_buffer` (bytes) makes a
  // client that takes little before it reads.
  explicit RawSocket(int port, const std::string& source = "127.0.0.1", int receive_buffer = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const auto from = *SocketAddress::Parse(source, 0), to = SocketAddress::LoopbackIpv4(port);
    connected_ = bind(fd_.get(), from.raw(), from.length()) == 0 && connect(fd_.get(), to.raw(), to.length()) == 0;
    const timeval timeout{10, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  }

  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }

  // False: the other side is gone (or does not read).
  bool Send(const std::string& bytes) {
    size_t at = 0;
    while (at < bytes.size()) {
      const ssize_t sent = send(fd_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += size_t(sent);
    }
    return true;
  }
  // What is there, at least one byte; empty: the end, or nothing for ten seconds.
  std::string Receive() {
    std::string bytes(1 << 16, '\0');
    const ssize_t count = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(count > 0 ? size_t(count) : 0);
    return bytes;
  }
  // All until the other side closes.
  std::string ReceiveAll() {
    std::string all;
    for (std::string bytes = Receive(); !bytes.empty(); bytes = Receive()) all += bytes;
    return all;
  }
  // The other side has closed, or does so within `timeout`; bytes that come before are thrown away.
  bool ClosedWithin(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const timeval step{0, 20'000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &step, sizeof step);
    char bytes[4096];
    while (std::chrono::steady_clock::now() < deadline) {
      const ssize_t count = recv(fd_.get(), bytes, sizeof bytes, 0);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return true;
    }
    return false;
  }
  void EndSending() { shutdown(fd_.get(), SHUT_WR); }

 private:
  UniqueFd fd_;
  bool connected_ = false;
};

}  // namespace sluice
