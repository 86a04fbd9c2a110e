#include "tests/client/silent_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace sluice::client {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// What there is to read of one goes to the other; false: that was the end.
bool Pass(int from, int to) {
  char bytes[1 << 14];
  const ssize_t count = read(from, bytes, sizeof(bytes));
  if (count <= 0) return false;
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t n = send(to, bytes + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += n;
  }
  return true;
}

}  // namespace

SilentProxy::SilentProxy(const std::string& server) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  SLUICE_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener, 1) == 0);
  SLUICE_CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  thread_ = std::thread([this, listener, server] { Serve(listener, server); });
}

SilentProxy::~SilentProxy() {
  stopped_ = true;
  thread_.join();
}

void SilentProxy::Serve(int listener, std::string server) {
  constexpr int kLookMs = 10;
  const int port = std::atoi(server.c_str() + server.rfind(':') + 1);
  pollfd sides[2] = {{listener, POLLIN, 0}, {-1, POLLIN, 0}};  // first the listener, then client and server
  while (!stopped_) {
    if (silent_ || poll(sides, 2, kLookMs) <= 0) {
      if (silent_) usleep(kLookMs * 1000);
      continue;
    }
    if (sides[1].fd < 0) {
      sides[0].fd = accept(listener, nullptr, nullptr);
      sides[1].fd = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in address = Loopback(static_cast<uint16_t>(port));
      SLUICE_CHECK(connect(sides[1].fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
      continue;
    }
    if (sides[0].revents != 0 && !Pass(sides[0].fd, sides[1].fd)) break;
    if (sides[1].revents != 0 && !Pass(sides[1].fd, sides[0].fd)) break;
  }
  if (sides[1].fd >= 0) {
    close(sides[0].fd);
    close(sides[1].fd);
  }
  close(listener);
}

}  // namespace sluice::client
