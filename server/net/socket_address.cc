#include "server/net/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

absl::Status NotAnAddress(absl::string_view text, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("found '", text, "', expected ", expected));
}

const in6_addr& Ipv6Of(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) {
  if (length > sizeof storage_) return;
  std::memcpy(&storage_, address, length);
  length_ = length;
  if (family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&Ipv6Of(storage_))) return;
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port;
  std::memcpy(&ipv4.sin_addr, Ipv6Of(storage_).s6_addr + 12, 4);
  storage_ = {};
  std::memcpy(&storage_, &ipv4, sizeof ipv4);
  length_ = sizeof ipv4;
}

absl::StatusOr<SocketAddress> SocketAddress::Parse(absl::string_view text, int port) {
  absl::string_view bare = text;
  if (bare.size() > 2 && bare.front() == '[' && bare.back() == ']') bare = bare.substr(1, bare.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  // getaddrinfo would read "1" and "0x7f.1" as addresses, too.
  const bool looks_right = bare.find(':') != bare.npos || std::count(bare.begin(), bare.end(), '.') == 3;
  addrinfo* found = nullptr;
  if (!looks_right || getaddrinfo(std::string(bare).c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) {
    return NotAnAddress(text, "an IP address such as 0.0.0.0, 127.0.0.1, ::, ::1 or fe80::1%eth0");
  }
  const SocketAddress address(found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

SocketAddress SocketAddress::AnyIpv4(int port) { return *Parse("0.0.0.0", port); }
SocketAddress SocketAddress::AnyIpv6(int port) { return *Parse("::", port); }
SocketAddress SocketAddress::LoopbackIpv4(int port) { return *Parse("127.0.0.1", port); }
SocketAddress SocketAddress::LoopbackIpv6(int port) { return *Parse("::1", port); }

int SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
  return 0;
}

std::array<uint8_t, 16> SocketAddress::bytes() const {
  std::array<uint8_t, 16> bytes{};
  if (family() == AF_INET6) {
    std::memcpy(bytes.data(), Ipv6Of(storage_).s6_addr, 16);
  } else if (family() == AF_INET) {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr, 4);
  }
  return bytes;
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 2];
  if (length_ == 0 || getnameinfo(raw(), length_, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "unknown";
  return text;
}

std::string SocketAddress::ToString() const {
  return family() == AF_INET6 ? absl::StrCat("[", host(), "]:", port()) : absl::StrCat(host(), ":", port());
}

PeerKey PeerKeyOf(const SocketAddress& address) {
  PeerKey key = address.bytes();
  if (address.family() == AF_INET6) std::memset(key.data() + 8, 0, 8);
  return key;
}

absl::StatusOr<Network> Network::Parse(absl::string_view text) {
  constexpr absl::string_view kExpected = "an IP address or a network such as 10.0.0.0/8 or 2001:db8::/32";
  const size_t slash = text.find('/');
  auto address = SocketAddress::Parse(text.substr(0, slash), 0);
  if (!address.ok()) return NotAnAddress(text, kExpected);
  const int width = address->family() == AF_INET ? 32 : 128;
  int num_bits = width;
  if (slash != text.npos && !absl::SimpleAtoi(text.substr(slash + 1), &num_bits)) return NotAnAddress(text, kExpected);
  if (num_bits < 0 || num_bits > width) return NotAnAddress(text, kExpected);
  Network network;
  network.prefix_ = address->bytes();
  network.num_bits_ = 128 - width + num_bits;
  return network;
}

bool Network::Contains(const SocketAddress& address) const {
  const std::array<uint8_t, 16> bytes = address.bytes();
  const int whole = num_bits_ / 8, rest = num_bits_ % 8;
  if (std::memcmp(bytes.data(), prefix_.data(), size_t(whole)) != 0) return false;
  if (rest == 0) return true;
  const uint8_t mask = uint8_t(0xff << (8 - rest));
  return ((bytes[size_t(whole)] ^ prefix_[size_t(whole)]) & mask) == 0;
}

}  // namespace sluice
