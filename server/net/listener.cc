#include "server/net/listener.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

// 0, or the errno of what failed.
int BindAndListen(const SocketAddress& address, UniqueFd* fd) {
  fd->reset(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd->valid()) return errno;
  const int on = 1, off = 0;
  // After a restart the old connections of the port may still be in TIME_WAIT. SO_REUSEPORT stays off: a second server
  // on the port is a mistake that must be seen.
  setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6 &&
      setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 && errno != ENOPROTOOPT) {
    return errno;
  }
  if (bind(fd->get(), address.raw(), address.length()) != 0) return errno;
  return listen(fd->get(), SOMAXCONN) != 0 ? errno : 0;
}

absl::string_view Hint(int error) {
  if (error == EADDRINUSE) return "; is another server running? Port 0 takes any free one";
  if (error == EADDRNOTAVAIL) return "; it is not an address of this machine";
  return "";
}

// The ones that `host` may mean, best first.
absl::StatusOr<std::vector<SocketAddress>> Candidates(absl::string_view host, int port) {
  if (host == kEveryAddress) return std::vector{SocketAddress::AnyIpv6(port), SocketAddress::AnyIpv4(port)};
  if (host == kLoopbackAddress) {
    return std::vector{SocketAddress::LoopbackIpv4(port), SocketAddress::LoopbackIpv6(port)};
  }
  auto address = SocketAddress::Parse(host, port);
  if (!address.ok()) return absl::InvalidArgumentError(absl::StrCat("--host: ", address.status().message()));
  return std::vector{*address};
}

}  // namespace

absl::StatusOr<Listener> Listener::Open(absl::string_view flag, absl::string_view host, int port) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> candidates, Candidates(host, port));
  Listener listener;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int error = BindAndListen(candidates[i], &listener.fd_);
    // Only what the machine does not have leads to the next one: a port in use must be seen.
    const bool missing = error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == EPROTONOSUPPORT;
    if (error != 0 && missing && i + 1 < candidates.size()) continue;
    if (error != 0) {
      return absl::UnavailableError(absl::StrCat(flag, ": cannot listen on ", candidates[i].ToString(), ": ",
                                                 std::strerror(error), Hint(error)));
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    getsockname(listener.fd_.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    listener.address_ = SocketAddress(reinterpret_cast<sockaddr*>(&bound), length);
    break;
  }
  return listener;
}

}  // namespace sluice
