// IP addresses: what a user writes, where a listener is, who a peer is.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// An IPv4 or IPv6 address with its port. An IPv4 address that came through an IPv6 socket (::ffff:a.b.c.d) counts as
// the IPv4 address that it is.
class SocketAddress {
 public:
  SocketAddress() = default;  // no address
  // `address` is a sockaddr_in or a sockaddr_in6; of anything else comes an address that prints as "unknown".
  SocketAddress(const sockaddr* address, socklen_t length);

  // Numbers only, nothing is looked up: "127.0.0.1", "::1", "[::1]", "fe80::1%eth0". INVALID_ARGUMENT without a flag's
  // name says what was found and what was expected.
  static absl::StatusOr<SocketAddress> Parse(absl::string_view text, int port);
  static SocketAddress AnyIpv4(int port);
  static SocketAddress AnyIpv6(int port);  // all of IPv6, and on a dual-stack socket all of IPv4
  static SocketAddress LoopbackIpv4(int port);
  static SocketAddress LoopbackIpv6(int port);

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  int port() const;

  // As sixteen bytes; an IPv4 address as ::ffff:a.b.c.d.
  std::array<uint8_t, 16> bytes() const;
  // "127.0.0.1", "fe80::1%eth0".
  std::string host() const;
  // "127.0.0.1:80", "[fe80::1%eth0]:80".
  std::string ToString() const;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

// The one that limits per peer count: an IPv4 address, or all of a /64 of IPv6, which is what one customer has.
using PeerKey = std::array<uint8_t, 16>;
PeerKey PeerKeyOf(const SocketAddress& address);

// "10.0.0.0/8", "2001:db8::/32", or one address.
class Network {
 public:
  // INVALID_ARGUMENT as SocketAddress::Parse.
  static absl::StatusOr<Network> Parse(absl::string_view text);
  bool Contains(const SocketAddress& address) const;

 private:
  std::array<uint8_t, 16> prefix_{};
  int num_bits_ = 0;
};

}  // namespace sluice
