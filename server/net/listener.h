// The sockets that the server listens on: one way to open them, for gRPC, HTTP and the admin service.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/net/socket_address.h"
#include "server/net/unique_fd.h"

namespace sluice {

// What --host means when it is not given: every address of the machine, [::] where it has IPv6, else 0.0.0.0.
inline constexpr absl::string_view kEveryAddress = "auto";
// 127.0.0.1, or ::1 on a machine without it.
inline constexpr absl::string_view kLoopbackAddress = "localhost";

// Bound and listening; non-blocking. "::" and kEveryAddress take IPv4 as well as IPv6.
class Listener {
 public:
  // `host`: a number as SocketAddress::Parse takes it, kEveryAddress or kLoopbackAddress. `port` 0: any free one.
  // INVALID_ARGUMENT: --host is not an address; UNAVAILABLE: the sentence names `flag`, the address and what is wrong.
  static absl::StatusOr<Listener> Open(absl::string_view flag, absl::string_view host, int port);

  int fd() const { return fd_.get(); }
  void Close() { fd_.reset(); }
  // With the port that was chosen.
  const SocketAddress& address() const { return address_; }

 private:
  UniqueFd fd_;
  SocketAddress address_;
};

}  // namespace sluice
