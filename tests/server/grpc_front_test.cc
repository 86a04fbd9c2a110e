// The door in front of gRPC, with this test in gRPC's place.
#include "server/net/grpc_front.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "server/net/acceptor.h"
#include "tests/server/peer_of.h"
#include "tests/server/raw_http2.h"
#include "tests/server/raw_socket.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

const std::string kHello = raw::kPreface + raw::Frame(raw::kSettings, 0, 0);

void WaitFor(const std::string& what, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "waited in vain for " << what;
    std::this_thread::sleep_for(2ms);
  }
}

class GrpcFrontTest : public ::testing::Test {
 protected:
  void Start(const std::function<void(GrpcFrontOptions*)>& change = {}) {
    GrpcFrontOptions options;
    options.name = "test";
    if (change) change(&options);
    auto listener = Listener::Open("--x", kLoopbackAddress, 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    auto front = GrpcFront::Start(
        *std::move(listener), options,
        [this](UniqueFd fd) {
          MutexLock lock(&mutex_);
          handed_over_.push_back(std::move(fd));
        },
        [this](bool able) { able_ = able; });
    ASSERT_TRUE(front.ok()) << front.status();
    front_ = *std::move(front);
  }
  int port() const { return front_->address().port(); }
  uint64_t Cut(CutReason reason) const { return front_->Stats().cut[size_t(reason)]; }

  // gRPC's end of the next connection, blocking.
  UniqueFd Next() {
    UniqueFd fd;
    WaitFor("a connection", [&] {
      MutexLock lock(&mutex_);
      if (handed_over_.empty()) return false;
      fd = std::move(handed_over_.front());
      handed_over_.pop_front();
      return true;
    });
    const timeval timeout{10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  size_t num_handed_over() {
    MutexLock lock(&mutex_);
    return handed_over_.size();
  }
  static std::string ReceiveExactly(int fd, size_t count) {
    std::string bytes(count, '\0');
    size_t at = 0;
    while (at < count) {
      const ssize_t got = recv(fd, bytes.data() + at, count - at, 0);
      if (got <= 0) break;
      at += size_t(got);
    }
    bytes.resize(at);
    return bytes;
  }
  // How many of `bytes`, over and over, `fd` takes until it takes no more.
  static size_t Fill(int fd, const std::string& bytes) {
    size_t total = 0;
    int refusals = 0;
    while (refusals < 50 && total < (64 << 20)) {
      const size_t at = total % bytes.size();
      const ssize_t sent = send(fd, bytes.data() + at, bytes.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) {
        total += size_t(sent);
        refusals = 0;
      } else {
        ++refusals;
        std::this_thread::sleep_for(10ms);
      }
    }
    return total;
  }

  Mutex mutex_;
  std::deque<UniqueFd> handed_over_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> able_{true};
  std::unique_ptr<GrpcFront> front_;
};

TEST_F(GrpcFrontTest, BytesGoBothWaysUnchanged) {
  Start();
  RawSocket client(port());
  std::string sent = kHello + raw::Frame(raw::kHeaders, raw::kEndHeaders, 1, raw::RequestHeaders());
  for (int i = 0; i < 200; ++i) sent += raw::Frame(raw::kData, 0, 1, std::string(16384, char(i)));
  std::thread writer([&] { EXPECT_TRUE(client.Send(sent)); });
  const UniqueFd grpc = Next();
  EXPECT_TRUE(ReceiveExactly(grpc.get(), sent.size()) == sent);
  writer.join();
  std::string answer(5'000'000, '\0');
  for (size_t i = 0; i < answer.size(); ++i) answer[i] = char(i * 7919 >> 8);
  std::thread answerer([&] { EXPECT_EQ(send(grpc.get(), answer.data(), answer.size(), 0), ssize_t(answer.size())); });
  EXPECT_TRUE(ReceiveExactly(client.fd(), answer.size()) == answer);
  answerer.join();
}

TEST_F(GrpcFrontTest, HeadersInSinglesComeInOnePiece) {
  Start();
  RawSocket client(port());
  ASSERT_TRUE(client.Send(kHello));
  const UniqueFd grpc = Next();
  EXPECT_EQ(ReceiveExactly(grpc.get(), kHello.size()), kHello);
  const std::string headers = raw::Frame(raw::kHeaders, 0, 1, raw::RequestHeaders().substr(0, 20)) +
                              raw::Frame(raw::kContinuation, raw::kEndHeaders, 1, raw::RequestHeaders().substr(20));
  for (size_t i = 0; i + 1 < headers.size(); ++i) ASSERT_TRUE(client.Send(headers.substr(i, 1)));
  std::this_thread::sleep_for(50ms);
  char byte = 0;
  EXPECT_EQ(recv(grpc.get(), &byte, 1, MSG_DONTWAIT), -1) << "nothing before the last byte";
  ASSERT_TRUE(client.Send(headers.substr(headers.size() - 1)));
  EXPECT_EQ(ReceiveExactly(grpc.get(), headers.size()), headers);
}

TEST_F(GrpcFrontTest, GrpcSeesThePeer) {
  Start();
  RawSocket client(port(), "127.0.0.9");
  ASSERT_TRUE(client.Send(kHello));
  const UniqueFd grpc = Next();
  sockaddr_un peer{};
  socklen_t length = sizeof peer;
  ASSERT_EQ(getpeername(grpc.get(), reinterpret_cast<sockaddr*>(&peer), &length), 0);
  const std::string name(peer.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
  EXPECT_EQ(PeerOf("unix-abstract:" + name).rfind("127.0.0.9:", 0), 0u) << name;
}

TEST_F(GrpcFrontTest, AClientThatDoesNotReadStopsTheServersWrites) {
  Start();
  RawSocket client(port(), "127.0.0.1", 4096);
  ASSERT_TRUE(client.Send(kHello));
  const UniqueFd grpc = Next();
  const size_t taken = Fill(grpc.get(), std::string(1000, 'x'));
  EXPECT_LT(taken, 8u << 20);
  // And once it reads, they go on.
  size_t received = 0;
  std::thread reader([&] {
    while (received < taken + 1000) {
      const size_t count = client.Receive().size();
      if (count == 0) break;
      received += count;
    }
  });
  const std::string last(1000, 'y');
  EXPECT_EQ(send(grpc.get(), last.data(), last.size(), 0), 1000);
  reader.join();
  EXPECT_EQ(received, taken + 1000);
}

TEST_F(GrpcFrontTest, AServerThatDoesNotReadStopsTheClientsWrites) {
  Start();
  RawSocket client(port());
  ASSERT_TRUE(client.Send(kHello + raw::Frame(raw::kHeaders, raw::kEndHeaders, 1, raw::RequestHeaders())));
  const UniqueFd grpc = Next();
  const size_t before = kHello.size() + 9 + raw::RequestHeaders().size();
  const std::string frame = raw::Frame(raw::kData, 0, 1, std::string(16384, 'x'));
  const size_t taken = Fill(client.fd(), frame);
  EXPECT_LT(taken, 32u << 20);
  EXPECT_EQ(ReceiveExactly(grpc.get(), before + taken).size(), before + taken);
}

TEST_F(GrpcFrontTest, TheEndOfEitherSideComesAfterItsBytes) {
  Start();
  {
    RawSocket client(port());
    ASSERT_TRUE(client.Send(kHello));
    const UniqueFd grpc = Next();
    client.EndSending();
    EXPECT_EQ(ReceiveExactly(grpc.get(), 1000), kHello);
    // The client may still be answered.
    ASSERT_EQ(send(grpc.get(), "bye", 3, 0), 3);
    EXPECT_EQ(ReceiveExactly(client.fd(), 3), "bye");
  }
  RawSocket client(port(), "127.0.0.1", 4096);
  ASSERT_TRUE(client.Send(kHello));
  UniqueFd grpc = Next();
  const std::string last(150'000, 'x');
  std::thread writer([&] {
    EXPECT_EQ(send(grpc.get(), last.data(), last.size(), 0), ssize_t(last.size()));
    ReceiveExactly(grpc.get(), kHello.size());
    grpc.reset();
  });
  EXPECT_EQ(client.ReceiveAll(), last);
  writer.join();
  WaitFor("the connection to be gone", [&] { return front_->Stats().open == 0; });
}

TEST_F(GrpcFrontTest, AClientThatVanishesIsGoneForTheServer) {
  Start();
  auto client = std::make_unique<RawSocket>(port());
  ASSERT_TRUE(client->Send(kHello));
  const UniqueFd grpc = Next();
  const linger abort{1, 0};
  setsockopt(client->fd(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  client.reset();
  EXPECT_EQ(ReceiveExactly(grpc.get(), 1000), kHello);
  WaitFor("the connection to be gone", [&] { return front_->Stats().open == 0; });
}

TEST_F(GrpcFrontTest, GrpcIsToldOfNoOneWhoDoesNotSpeakHttp2) {
  Start([](GrpcFrontOptions* options) { options->receive_timeout = 200ms; });
  RawSocket silent(port()), half(port()), http(port());
  ASSERT_TRUE(half.Send(raw::kPreface.substr(0, 10)));
  ASSERT_TRUE(http.Send("GET / HTTP/1.1\r\n"));
  EXPECT_TRUE(http.ClosedWithin(5s));
  EXPECT_TRUE(silent.ClosedWithin(5s));
  EXPECT_TRUE(half.ClosedWithin(5s));
  EXPECT_EQ(num_handed_over(), 0u);
  EXPECT_EQ(Cut(CutReason::kNotHttp2), 1u);
  EXPECT_EQ(Cut(CutReason::kRequestTimeout), 2u);
  // Nor is anybody shunned for it.
  RawSocket good(port());
  ASSERT_TRUE(good.Send(kHello));
  Next();
}

TEST_F(GrpcFrontTest, ARequestThatDoesNotComeInFullIsCut) {
  Start([](GrpcFrontOptions* options) { options->receive_timeout = 300ms; });
  RawSocket headers(port()), body(port()), idle(port());
  const std::string open = kHello + raw::Frame(raw::kHeaders, raw::kEndHeaders, 1, raw::RequestHeaders());
  ASSERT_TRUE(headers.Send(open.substr(0, open.size() - 1)));
  ASSERT_TRUE(body.Send(open + raw::Frame(raw::kData, 0, 1, raw::Message("abc").substr(0, 7))));
  ASSERT_TRUE(idle.Send(open + raw::Frame(raw::kData, raw::kEndStream, 1, raw::Message("abc"))));
  const std::vector<UniqueFd> grpc = [&] {
    std::vector<UniqueFd> ends;
    for (int i = 0; i < 3; ++i) ends.push_back(Next());
    return ends;
  }();
  EXPECT_TRUE(headers.ClosedWithin(5s));
  EXPECT_TRUE(body.ClosedWithin(5s));
  EXPECT_FALSE(idle.ClosedWithin(500ms)) << "it waits for its answer";
  EXPECT_EQ(Cut(CutReason::kRequestTimeout), 2u);
}

TEST_F(GrpcFrontTest, AViolationClosesTheConnectionAndShunsThePeer) {
  Start([](GrpcFrontOptions* options) { options->shun_time = 400ms; });
  RawSocket bad(port(), "127.0.0.2"), bystander(port(), "127.0.0.2");
  ASSERT_TRUE(bystander.Send(kHello));
  const UniqueFd bystanders = Next();
  ASSERT_TRUE(bad.Send(kHello));
  const UniqueFd bads = Next();
  ASSERT_TRUE(bad.Send(raw::Frame(raw::kContinuation, 0, 1, "x")));
  const std::string last_words = bad.ReceiveAll();
  EXPECT_NE(last_words.find("sluice: malformed_frame"), std::string::npos) << "a GOAWAY says why";
  EXPECT_EQ(Cut(CutReason::kMalformedFrame), 1u);
  EXPECT_TRUE(RawSocket(port(), "127.0.0.2").ClosedWithin(5s));
  EXPECT_EQ(Cut(CutReason::kShunned), 1u);
  // Neither its other connections nor other peers are touched.
  EXPECT_FALSE(bystander.ClosedWithin(50ms));
  RawSocket other(port(), "127.0.0.3");
  ASSERT_TRUE(other.Send(kHello));
  Next();
  std::this_thread::sleep_for(500ms);
  RawSocket again(port(), "127.0.0.2");
  ASSERT_TRUE(again.Send(kHello));
  Next();
}

TEST_F(GrpcFrontTest, UnfinishedRequestsOfAllAreBoundedByCuttingTheOldest) {
  Start([](GrpcFrontOptions* options) { options->max_unfinished_requests = 10; });
  const auto requests = [](int count) {
    std::string bytes = kHello;
    for (int i = 0; i < count; ++i) {
      bytes += raw::Frame(raw::kHeaders, raw::kEndHeaders, uint32_t(1 + 2 * i), raw::RequestHeaders());
    }
    return bytes;
  };
  RawSocket old(port()), younger(port());
  ASSERT_TRUE(old.Send(requests(6)));
  const UniqueFd olds = Next();
  ASSERT_TRUE(younger.Send(requests(4)));
  const UniqueFd youngers = Next();
  EXPECT_FALSE(old.ClosedWithin(100ms));
  RawSocket newest(port());
  ASSERT_TRUE(newest.Send(requests(1)));
  EXPECT_TRUE(old.ClosedWithin(5s));
  EXPECT_FALSE(younger.ClosedWithin(50ms));
  EXPECT_FALSE(newest.ClosedWithin(50ms));
  EXPECT_EQ(Cut(CutReason::kUnfinishedRequests), 1u);
}

TEST_F(GrpcFrontTest, WhoHoardsUnfinishedRequestsLosesAllItsHoards) {
  Start([](GrpcFrontOptions* options) { options->max_unfinished_requests = 250; });
  const auto requests = [](int count) {
    std::string bytes = kHello;
    for (int i = 0; i < count; ++i) {
      bytes += raw::Frame(raw::kHeaders, raw::kEndHeaders, uint32_t(1 + 2 * i), raw::RequestHeaders());
    }
    return bytes;
  };
  RawSocket first(port(), "127.0.0.2"), second(port(), "127.0.0.2"), modest(port(), "127.0.0.2");
  RawSocket other(port(), "127.0.0.3");
  std::vector<UniqueFd> ends;
  ASSERT_TRUE(first.Send(requests(100)));
  ends.push_back(Next());
  ASSERT_TRUE(second.Send(requests(100)));
  ends.push_back(Next());
  ASSERT_TRUE(modest.Send(requests(10)));
  ends.push_back(Next());
  ASSERT_TRUE(other.Send(requests(100)));
  EXPECT_TRUE(first.ClosedWithin(5s));
  EXPECT_TRUE(second.ClosedWithin(5s));
  EXPECT_FALSE(modest.ClosedWithin(50ms));
  EXPECT_FALSE(other.ClosedWithin(50ms));
  EXPECT_EQ(Cut(CutReason::kUnfinishedRequests), 2u);
}

TEST_F(GrpcFrontTest, ConnectionsPerPeerAreBoundedButForTrustedProxies) {
  Start([](GrpcFrontOptions* options) {
    options->max_connections_per_peer = 2;
    options->trusted_proxies = {*Network::Parse("127.0.0.4/31")};
  });
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < 5; ++i) sockets.push_back(std::make_unique<RawSocket>(port(), "127.0.0.5"));
  for (int i = 0; i < 2; ++i) sockets.push_back(std::make_unique<RawSocket>(port(), "127.0.0.2"));
  EXPECT_TRUE(RawSocket(port(), "127.0.0.2").ClosedWithin(5s));
  EXPECT_EQ(Cut(CutReason::kMaxConnectionsPerPeer), 1u);
  for (const auto& socket : sockets) EXPECT_FALSE(socket->ClosedWithin(20ms));
  sockets.pop_back();
  WaitFor("the closed one to be gone", [&] { return front_->Stats().open == 6; });
  EXPECT_FALSE(RawSocket(port(), "127.0.0.2").ClosedWithin(50ms));
}

// Requests 1, 3, 5 ... as a client begins them; the first with what comes before it.
std::string Request(uint32_t number) {
  return (number == 1 ? kHello : "") +
         raw::Frame(raw::kHeaders, raw::kEndHeaders | raw::kEndStream, number, raw::RequestHeaders());
}

TEST_F(GrpcFrontTest, AFloodOfRequestsIsReadNoFartherAndOthersAre) {
  Start([](GrpcFrontOptions* options) {
    options->requests_per_peer = {.per_second = 1e-3, .burst = 2};
    options->trusted_proxies = {*Network::Parse("127.0.0.4/32")};
  });
  RawSocket flood(port(), "127.0.0.2");
  std::string read;
  for (uint32_t i = 1; i <= 5; i += 2) read += Request(i);
  ASSERT_TRUE(flood.Send(read));
  const UniqueFd grpc = Next();
  ASSERT_EQ(ReceiveExactly(grpc.get(), read.size()), read);
  ASSERT_TRUE(flood.Send(Request(7)));
  // Those who come later are read: another peer, and a proxy with many of them.
  for (const char* source : {"127.0.0.3", "127.0.0.4"}) {
    RawSocket other(port(), source);
    ASSERT_TRUE(other.Send(Request(1)));
    const UniqueFd others = Next();
    EXPECT_EQ(ReceiveExactly(others.get(), Request(1).size()), Request(1));
    if (source == std::string("127.0.0.3")) continue;
    for (uint32_t i = 3; i < 21; i += 2) {
      ASSERT_TRUE(other.Send(Request(i)));
      EXPECT_EQ(ReceiveExactly(others.get(), Request(i).size()), Request(i));
    }
  }
  char byte;
  EXPECT_EQ(recv(grpc.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_FALSE(flood.ClosedWithin(20ms));
}

TEST_F(GrpcFrontTest, APausedConnectionIsReadAgainWhenItsAllowanceHasCaughtUp) {
  Start([](GrpcFrontOptions* options) { options->requests_per_peer = {.per_second = 100, .burst = 1}; });
  RawSocket client(port());
  ASSERT_TRUE(client.Send(Request(1)));
  const UniqueFd grpc = Next();
  EXPECT_EQ(ReceiveExactly(grpc.get(), Request(1).size()), Request(1));
  for (uint32_t i = 3; i < 15; i += 2) {
    ASSERT_TRUE(client.Send(Request(i)));
    EXPECT_EQ(ReceiveExactly(grpc.get(), Request(i).size()), Request(i));
  }
}

TEST_F(GrpcFrontTest, ConnectionsInAllAreBoundedAndSilentOnesMakeRoom) {
  Start([](GrpcFrontOptions* options) { options->max_connections = 3; });
  const std::string request =
      kHello + raw::Frame(raw::kHeaders, raw::kEndHeaders | raw::kEndStream, 1, raw::RequestHeaders());
  RawSocket silent(port()), busy(port());
  ASSERT_TRUE(busy.Send(request));
  const UniqueFd first = Next();
  RawSocket third(port()), fourth(port());
  EXPECT_TRUE(silent.ClosedWithin(5s));
  EXPECT_EQ(Cut(CutReason::kEvicted), 1u);
  std::vector<UniqueFd> grpc;
  for (RawSocket* socket : {&third, &fourth}) {
    ASSERT_TRUE(socket->Send(request));
    grpc.push_back(Next());
  }
  WaitFor("the front to be full", [&] { return !able_.load(); });
  EXPECT_TRUE(RawSocket(port()).ClosedWithin(5s));
  EXPECT_EQ(Cut(CutReason::kMaxConnections), 1u);
  grpc.clear();
  WaitFor("the front to be able again", [&] { return able_.load(); });
}

TEST_F(GrpcFrontTest, NoDescriptorsLeftIsSurvived) {
  Start();
  RawSocket before(port());
  ASSERT_TRUE(before.Send(kHello));
  const UniqueFd first = Next();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  // Clients made while there are descriptors, taken when there are none.
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const rlimit none{rlim_t(clients.back().get()) + 1, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const SocketAddress to = SocketAddress::LoopbackIpv4(port());
  for (const UniqueFd& client : clients) connect(client.get(), to.raw(), to.length());
  WaitFor("refusals", [&] { return Cut(CutReason::kDescriptors) >= 20; });
  WaitFor("the front to say so", [&] { return !able_.load(); });
  char byte = 0;
  for (const UniqueFd& client : clients) EXPECT_LE(recv(client.get(), &byte, 1, 0), 0) << "refused, not left hanging";
  EXPECT_EQ(ReceiveExactly(first.get(), kHello.size()), kHello);
  ASSERT_EQ(send(first.get(), "on", 2, 0), 2);
  EXPECT_EQ(ReceiveExactly(before.fd(), 2), "on") << "who is there is served on";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  WaitFor("the front to be able again", [&] { return able_.load(); });
  RawSocket after(port());
  ASSERT_TRUE(after.Send(kHello));
  Next();
}

TEST_F(GrpcFrontTest, StopClosesWhatIsThereAtItsDeadline) {
  Start();
  RawSocket client(port());
  ASSERT_TRUE(client.Send(kHello));
  const UniqueFd grpc = Next();
  front_->StopIn(300ms);
  EXPECT_FALSE(client.ClosedWithin(100ms));
  EXPECT_TRUE(client.ClosedWithin(5s));
  EXPECT_EQ(ReceiveExactly(grpc.get(), 1000), kHello);
  front_->Stop();
  front_->Stop();
}

}  // namespace
}  // namespace sluice
