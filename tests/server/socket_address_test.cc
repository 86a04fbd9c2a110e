// Addresses: how they are written, who counts as one peer, and where listeners are.
#include "server/net/socket_address.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "server/net/listener.h"
#include "tests/server/peer_of.h"

namespace sluice {
namespace {

std::string Written(const std::string& text) {
  const auto address = SocketAddress::Parse(text, 80);
  return address.ok() ? address->ToString() : "refused";
}

TEST(SocketAddress, IsWrittenAsItIsRead) {
  EXPECT_EQ(Written("127.0.0.1"), "127.0.0.1:80");
  EXPECT_EQ(Written("::1"), "[::1]:80");
  EXPECT_EQ(Written("[::1]"), "[::1]:80");
  EXPECT_EQ(Written("0:0:0:0:0:0:0:1"), "[::1]:80");
  EXPECT_EQ(Written("::ffff:1.2.3.4"), "1.2.3.4:80");
  EXPECT_EQ(Written("fe80::1%lo"), "[fe80::1%lo]:80");
  EXPECT_EQ(Written("fe80::1%1"), "[fe80::1%lo]:80");
}

TEST(SocketAddress, WhatIsNoAddressIsRefused) {
  for (const char* text : {"", "nowhere", "localhost", "1", "0x7f.1", "127.1", "1.2.3.4.5", "1.2.3.256", "::1::",
                           "[::1", "[]", "fe80::1%nonesuch", "::1%", "1.2.3.4%lo", "127.0.0.1:80"}) {
    EXPECT_EQ(Written(text), "refused") << text;
  }
  EXPECT_NE(SocketAddress::Parse("nowhere", 0).status().message().find("'nowhere'"), std::string::npos);
}

TEST(SocketAddress, PeersAreIpv4AddressesAndNetworksOfIpv6) {
  const auto key = [](const char* text) { return PeerKeyOf(*SocketAddress::Parse(text, 1)); };
  EXPECT_EQ(key("1.2.3.4"), key("::ffff:1.2.3.4"));
  EXPECT_NE(key("1.2.3.4"), key("1.2.3.5"));
  EXPECT_EQ(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
  EXPECT_NE(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
}

bool Contains(const char* network, const char* address) {
  const auto parsed = Network::Parse(network);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() && parsed->Contains(*SocketAddress::Parse(address, 1));
}

TEST(Network, ContainsWhatItsBitsSay) {
  EXPECT_TRUE(Contains("10.0.0.0/8", "10.255.0.1"));
  EXPECT_FALSE(Contains("10.0.0.0/8", "11.0.0.1"));
  EXPECT_TRUE(Contains("10.0.0.128/25", "10.0.0.200"));
  EXPECT_FALSE(Contains("10.0.0.128/25", "10.0.0.100"));
  EXPECT_TRUE(Contains("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(Contains("0.0.0.0/0", "::1"));
  EXPECT_TRUE(Contains("::1", "::1"));
  EXPECT_TRUE(Contains("2001:db8::/33", "2001:db8:7fff::"));
  EXPECT_FALSE(Contains("2001:db8::/33", "2001:db8:8000::"));
  for (const char* bad : {"", "/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "::/129", "ten"}) {
    EXPECT_FALSE(Network::Parse(bad).ok()) << bad;
  }
}

TEST(Listener, TakesBothFamiliesByDefault) {
  auto listener = Listener::Open("--x", kEveryAddress, 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const SocketAddress& bound = listener->address();
  EXPECT_GT(bound.port(), 0);
  const auto can_reach = [&](const SocketAddress& address) {
    const UniqueFd fd(socket(address.family(), SOCK_STREAM, 0));
    return fd.valid() && connect(fd.get(), address.raw(), address.length()) == 0;
  };
  EXPECT_TRUE(can_reach(SocketAddress::LoopbackIpv4(bound.port())));
  if (bound.family() != AF_INET6) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_EQ(bound.host(), "::");
  EXPECT_TRUE(can_reach(SocketAddress::LoopbackIpv6(bound.port())));
}

TEST(Listener, SaysWhatIsWrong) {
  EXPECT_EQ(Listener::Open("--x", "nowhere", 0).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string foreign(Listener::Open("--x", "192.0.2.1", 0).status().message());
  EXPECT_NE(foreign.find("--x: cannot listen on 192.0.2.1:0"), std::string::npos) << foreign;
  EXPECT_NE(foreign.find("not an address of this machine"), std::string::npos) << foreign;
  auto first = Listener::Open("--x", kEveryAddress, 0);
  ASSERT_TRUE(first.ok());
  for (const absl::string_view host : {kEveryAddress, kLoopbackAddress, absl::string_view("0.0.0.0")}) {
    const auto second = Listener::Open("--y", host, first->address().port());
    ASSERT_FALSE(second.ok()) << host;
    EXPECT_NE(second.status().message().find("is another server running?"), std::string::npos) << second.status();
  }
}

// In a network of its own, with ::1 and without 127.0.0.1. Exits with 77 where it may not make one.
[[noreturn]] void ListenWithoutIpv4Loopback() {
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(77);
  const UniqueFd inside(socket(AF_INET, SOCK_DGRAM, 0));
  request.ifr_flags = IFF_UP | IFF_LOOPBACK;
  if (ioctl(inside.get(), SIOCSIFFLAGS, &request) != 0) _exit(77);
  request.ifr_addr.sa_family = AF_INET;  // 0.0.0.0: no address any more
  std::memset(request.ifr_addr.sa_data, 0, sizeof request.ifr_addr.sa_data);
  if (ioctl(inside.get(), SIOCSIFADDR, &request) != 0) _exit(77);
  auto ipv6 = Listener::Open("--x", "::1", 0);
  if (!ipv6.ok()) _exit(77);
  if (Listener::Open("--x", "127.0.0.1", 0).ok()) _exit(76);
  const auto listener = Listener::Open("--x", kLoopbackAddress, 0);
  _exit(listener.ok() && listener->address().host() == "::1" ? 0 : 1);
}

TEST(Listener, TheLoopbackIsIpv6WhereThereIsNoOther) {
  const pid_t child = fork();
  if (child == 0) ListenWithoutIpv4Loopback();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network of its own can be made here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(PeerName, OtherPeersAreLeftAlone) {
  EXPECT_EQ(PeerOf("ipv4:127.0.0.1:80"), "ipv4:127.0.0.1:80");
  EXPECT_EQ(PeerOf("ipv6:%5B::1%5D:80"), "ipv6:[::1]:80");
  EXPECT_EQ(PeerOf("unix:"), "unix:");
}

}  // namespace
}  // namespace sluice
