// A whole server against each shape of attack, made small: the attacker is cut and counted, honest calls go on, and the
// server stops in time. tests/load/attacks does the same with force.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/raw_http2.h"
#include "tests/server/raw_socket.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

const std::string kHello = raw::kPreface + raw::Frame(raw::kSettings, 0, 0);

std::string Open(uint32_t stream, uint8_t flags = raw::kEndHeaders) {
  return raw::Frame(raw::kHeaders, flags, stream, raw::RequestHeaders());
}

class AttackTest : public ServerTest {
 protected:
  int grpc_port() const { return PortOf(server_->grpc_address()); }
  int http_port() const { return PortOf(server_->http_address()); }
  // Sends `bytes` over and over, `times` at most; false: the server has had enough.
  static bool Flood(RawSocket* socket, const std::string& bytes, int times) {
    for (int i = 0; i < times; ++i) {
      if (!socket->Send(bytes)) return false;
    }
    return !socket->ClosedWithin(2s);
  }
  double Cuts(const std::string& reason) const {
    return Metric("sluice_connections_cut_total", "listener=\"grpc\",reason=\"" + reason + "\"");
  }
  void ExpectServed() {
    EXPECT_TRUE(Complete(Prompt("abc")).ok());
    int status = 0;
    Http("/health/ready", &status);
    EXPECT_EQ(status, 200);
  }
  void ExpectStopsWithin(std::chrono::milliseconds limit) {
    const auto begin = std::chrono::steady_clock::now();
    Stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, limit);
  }

 private:
  static int PortOf(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }
};

TEST_F(AttackTest, RapidResetIsCut) {
  Start();
  RawSocket attacker(grpc_port(), "127.0.0.2");
  ASSERT_TRUE(attacker.Send(kHello));
  bool alive = true;
  for (uint32_t round = 0; alive && round < 100; ++round) {
    std::string bytes;
    for (uint32_t i = 0; i < 100; ++i) {
      const uint32_t stream = 1 + 2 * (100 * round + i);
      bytes += Open(stream) + raw::Cancel(stream);
    }
    alive = attacker.Send(bytes);
  }
  EXPECT_TRUE(attacker.ClosedWithin(5s));
  EXPECT_EQ(Cuts("resets"), 1);
  ExpectServed();
  ExpectStopsWithin(10s);
}

TEST_F(AttackTest, HalfOpenStreamsAreCutAndFreed) {
  ServerOptions options = TestOptions();
  options.network.receive_timeout = 500ms;
  Start(options);
  RawSocket attacker(grpc_port(), "127.0.0.2");
  std::string streams = kHello;
  for (uint32_t i = 0; i < 500; ++i) streams += Open(1 + 2 * i);
  ASSERT_TRUE(attacker.Send(streams));
  ExpectServed();
  EXPECT_TRUE(attacker.ClosedWithin(5s));
  EXPECT_EQ(Cuts("request_timeout"), 1);
  ExpectServed();
}

TEST_F(AttackTest, HalfOpenStreamsDoNotKeepTheServerFromStopping) {
  Start();
  RawSocket attacker(grpc_port(), "127.0.0.2");
  std::string streams = kHello;
  for (uint32_t i = 0; i < 1000; ++i) streams += Open(1 + 2 * i);
  ASSERT_TRUE(attacker.Send(streams));
  ExpectServed();
  ExpectStopsWithin(10s);
  EXPECT_TRUE(attacker.ClosedWithin(5s));
}

TEST_F(AttackTest, HeadersWithoutEndAreCut) {
  Start();
  RawSocket attacker(grpc_port(), "127.0.0.2");
  ASSERT_TRUE(attacker.Send(kHello + raw::Frame(raw::kHeaders, 0, 1, raw::RequestHeaders())));
  EXPECT_FALSE(Flood(&attacker, raw::Frame(raw::kContinuation, 0, 1, "aaaa"), 100));
  EXPECT_EQ(Cuts("continuations"), 1);
  ExpectServed();
}

TEST_F(AttackTest, AHugeHeaderIsCutBeforeSettingsAreAcknowledged) {
  Start();
  RawSocket attacker(grpc_port(), "127.0.0.2");
  std::string headers = kHello + raw::Frame(raw::kHeaders, 0, 1, raw::RequestHeaders());
  for (int i = 0; i < 4; ++i) headers += raw::Frame(raw::kContinuation, 0, 1, std::string(16000, '\0'));
  attacker.Send(headers);
  EXPECT_TRUE(attacker.ClosedWithin(5s));
  EXPECT_EQ(Cuts("header_size"), 1);
  ExpectServed();
}

TEST_F(AttackTest, PingAndSettingsFloodsAreCut) {
  Start();
  const std::string floods[] = {raw::Frame(raw::kPing, 0, 0, "12345678"), raw::Frame(raw::kSettings, 0, 0),
                                raw::Frame(raw::kPriority, 0, 3, std::string("\0\0\0\1\1", 5))};
  int peer = 2;
  for (const std::string& frame : floods) {
    RawSocket attacker(grpc_port(), "127.0.0." + std::to_string(peer++));
    ASSERT_TRUE(attacker.Send(kHello));
    std::string thousand;
    for (int i = 0; i < 1000; ++i) thousand += frame;
    EXPECT_FALSE(Flood(&attacker, thousand, 30)) << int(frame[3]);
  }
  ExpectServed();
}

TEST_F(AttackTest, ConnectionsOfOnePeerDoNotKeepOthersOut) {
  ServerOptions options = TestOptions();
  options.network.max_connections_per_peer = 20;
  Start(options);
  std::vector<std::unique_ptr<RawSocket>> hoard;
  for (int i = 0; i < 100; ++i) {
    hoard.push_back(std::make_unique<RawSocket>(grpc_port(), "127.0.0.2"));
    hoard.back()->Send(kHello);
  }
  const auto channel = NewChannel(server_->grpc_address());
  grpc::ClientContext context;
  v1::CompleteResponse response;
  EXPECT_TRUE(v1::GenerationService::NewStub(channel)->Complete(&context, Prompt("abc"), &response).ok());
  EXPECT_EQ(Cuts("max_connections_per_peer"), 80);
  ExpectServed();
}

TEST_F(AttackTest, AFullServerIsNotReadyUntilItHasRoomAgain) {
  ServerOptions options = TestOptions();
  options.network.max_connections = 3;
  Start(options);
  std::vector<std::unique_ptr<RawSocket>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawSocket>(grpc_port()));
    ASSERT_TRUE(clients.back()->Send(kHello + Open(1, raw::kEndHeaders | raw::kEndStream)));
  }
  const auto ready = [this] {
    int status = 0;
    Http("/health/ready", &status);
    return status == 200;
  };
  WaitFor("readiness to go", [&] { return !ready(); });
  clients.clear();
  WaitFor("readiness to come back", ready);
  ExpectServed();
}

TEST_F(AttackTest, TheGrpcListenerComesBackAfterRunningOutOfDescriptors) {
  Start();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 50; ++i) clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const rlimit none{rlim_t(clients.back().get()) + 1, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const SocketAddress to = SocketAddress::LoopbackIpv4(grpc_port());
  for (const UniqueFd& client : clients) connect(client.get(), to.raw(), to.length());
  std::this_thread::sleep_for(500ms);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_GT(Cuts("descriptors"), 0);
  WaitFor("readiness", [&] {
    int status = 0;
    Http("/health/ready", &status);
    return status == 200;
  });
  ExpectServed();
}

TEST_F(AttackTest, SlowSocketsDoNotStarveProbesAndMetrics) {
  Start();
  std::vector<std::unique_ptr<RawSocket>> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<RawSocket>(http_port(), "127.0.0." + std::to_string(2 + i % 5)));
    slow.back()->Send("GET /health HTTP/1.1\r\nX: ");
  }
  for (int i = 0; i < 20; ++i) {
    ExpectServed();
    EXPECT_GE(Metric("sluice_connections", "\"http\""), 200);
  }
}

}  // namespace
}  // namespace sluice
