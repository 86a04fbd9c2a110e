// The HTTP server by itself: what it answers, what it refuses, whom it does not wait for.
#include "server/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/raw_socket.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

// A client that reads up to what it expects.
class Client : public RawSocket {
 public:
  using RawSocket::RawSocket;
  std::string ReadUntil(const std::string& ending) {
    std::string text;
    char c = 0;
    while (recv(fd(), &c, 1, 0) == 1) {
      text += c;
      if (text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0) break;
    }
    return text;
  }
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(const HttpOptions& options = {}) {
    auto listener = Listener::Open("--http-port", "127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    server_ = HttpServer::Start(
        *std::move(listener), options,
        {{"/x", []() -> HttpResponse { return {.content_type = "text/plain", .body = "the body"}; }},
         {"/bad", []() -> HttpResponse { return {.status = 503, .body = "{}"}; }},
         {"/large", []() -> HttpResponse { return {.body = std::string(1 << 20, 'x')}; }}});
  }
  int port() const { return server_->address().port(); }
  uint64_t Cut(CutReason reason) const { return server_->Stats().cut[size_t(reason)]; }
  std::string Ask(const std::string& request) {
    Client client(port());
    client.Send(request);
    return client.ReceiveAll();
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersGet) {
  Start();
  const std::string answer = Ask("GET /x?query HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer.rfind("HTTP/1.1 200 ", 0), 0u) << answer;
  EXPECT_NE(answer.find("Content-Type: text/plain\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("\r\n\r\nthe body"), std::string::npos) << answer;
  EXPECT_EQ(Ask("GET /bad HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 503 ", 0), 0u);
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  Start();
  const std::string answer = Ask("HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("Content-Length: 8\r\n"), std::string::npos) << answer;
  EXPECT_EQ(answer.substr(answer.size() - 4), "\r\n\r\n") << answer;
}

TEST_F(HttpServerTest, UnknownPathsAndMethodsAreRefused) {
  Start();
  EXPECT_EQ(Ask("GET /y HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 404 ", 0), 0u);
  EXPECT_EQ(Ask("POST /x HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi").rfind("HTTP/1.0 405 ", 0), 0u);
}

TEST_F(HttpServerTest, AConnectionIsKept) {
  Start();
  Client client(port());
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_NE(client.ReadUntil("the body").find("200"), std::string::npos);
  }
}

TEST_F(HttpServerTest, OversizedRequestsAreRefused) {
  Start();
  EXPECT_NE(Ask("GET /x HTTP/1.1\r\nHost: a\r\nX: " + std::string(9000, 'x') + "\r\n\r\n").find(" 413 "),
            std::string::npos);
  EXPECT_NE(
      Ask("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + std::string(100000, 'x')).find(" 413 "),
      std::string::npos);
}

TEST_F(HttpServerTest, NonsenseIsCutAndNobodyElseIsHurt) {
  Start();
  EXPECT_EQ(Ask(std::string(100, '\x16')), "");
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u);
}

TEST_F(HttpServerTest, HalfOpenConnectionsBlockNobodyAndAreClosedInTime) {
  Start({.timeout = 200ms});
  Client half(port()), silent(port());
  half.Send("GET /x HT");
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u);
  EXPECT_EQ(half.ReceiveAll(), "");
  EXPECT_EQ(silent.ReceiveAll(), "");
}

TEST_F(HttpServerTest, ABodyThatDoesNotComeIsCutInTime) {
  Start({.timeout = 200ms});
  Client client(port());
  client.Send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.ReceiveAll(), "");
  EXPECT_EQ(Cut(CutReason::kRequestTimeout), 1u);
}

TEST_F(HttpServerTest, BytesOneByOneDoNotPutOffTheDeadline) {
  Start({.timeout = 300ms});
  Client client(port());
  const auto begin = std::chrono::steady_clock::now();
  client.Send("GET /x HTTP/1.1\r\nX: ");
  while (!client.ClosedWithin(20ms) && std::chrono::steady_clock::now() - begin < 5s) client.Send("x");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_EQ(Cut(CutReason::kRequestTimeout), 1u);
}

TEST_F(HttpServerTest, AConnectionBetweenRequestsHasMoreTime) {
  Start({.timeout = 200ms, .idle_timeout = 1s});
  Client client(port());
  client.Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(client.ReadUntil("the body"), "");
  std::this_thread::sleep_for(400ms);
  client.Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(client.ReadUntil("the body"), "");
  EXPECT_TRUE(client.ClosedWithin(10s));
}

TEST_F(HttpServerTest, TheOldestIncompleteRequestMakesRoom) {
  Start({.max_connections = 3});
  Client served(port());
  served.Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(served.ReadUntil("the body"), "");
  Client oldest(port()), younger(port());
  oldest.Send("GET /x HTTP/1.1\r\nX: ");
  younger.Send("GET /x HTTP/1.1\r\nX: ");
  served.Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");  // waits anew from here on
  EXPECT_NE(served.ReadUntil("the body"), "");
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u);
  EXPECT_TRUE(oldest.ClosedWithin(5s));
  EXPECT_FALSE(younger.ClosedWithin(50ms));
  EXPECT_EQ(Cut(CutReason::kEvicted), 1u);
}

TEST_F(HttpServerTest, SlowSocketsStarveNobody) {
  Start();
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<Client>(port(), "127.0.0." + std::to_string(2 + i / 50)));
    slow.back()->Send("GET /x HTTP/1.1\r\nX: ");
    if (i % 25 != 0) continue;
    EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u) << i;
  }
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u);
  EXPECT_LE(server_->Stats().open, 256);
}

TEST_F(HttpServerTest, OneAddressHasItsShareOnly) {
  Start({.max_connections_per_peer = 2, .trusted_proxies = {*Network::Parse("127.0.0.3")}});
  Client first(port(), "127.0.0.2"), second(port(), "127.0.0.2"), third(port(), "127.0.0.2");
  EXPECT_TRUE(first.ClosedWithin(5s));
  EXPECT_FALSE(second.ClosedWithin(50ms));
  EXPECT_FALSE(third.ClosedWithin(50ms));
  Client trusted[4] = {Client(port(), "127.0.0.3"), Client(port(), "127.0.0.3"), Client(port(), "127.0.0.3"),
                       Client(port(), "127.0.0.3")};
  for (Client& client : trusted) EXPECT_FALSE(client.ClosedWithin(20ms));
}

TEST_F(HttpServerTest, WhoDoesNotTakeAnswersMakesRoomToo) {
  Start({.max_connections = 2});
  Client first(port(), "127.0.0.1", 4096), second(port(), "127.0.0.1", 4096);
  for (Client* client : {&first, &second}) {
    for (int i = 0; i < 20; ++i) client->Send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  // At first all are being answered.
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u);
}

}  // namespace
}  // namespace sluice
