// The HTTP server by itself: what it answers, what it refuses, whom it does not wait for.
#include "server/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
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
  // A client sees the end a moment before it is counted.
  void ExpectTimeout() const {
    for (int i = 0; i < 500 && Cut(CutReason::kRequestTimeout) == 0; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(Cut(CutReason::kRequestTimeout), 1u);
  }
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
  ExpectTimeout();
}

TEST_F(HttpServerTest, BytesOneByOneDoNotPutOffTheDeadline) {
  Start({.timeout = 300ms});
  Client client(port());
  const auto begin = std::chrono::steady_clock::now();
  client.Send("GET /x HTTP/1.1\r\nX: ");
  while (!client.ClosedWithin(20ms) && std::chrono::steady_clock::now() - begin < 5s) client.Send("x");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  ExpectTimeout();
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

// A route by itself: what it is asked, and its reply in the test's hands.
class HttpRouteTest : public HttpServerTest {
 protected:
  void StartRoute(const HttpOptions& options = {}, uint64_t max_body_bytes = 100'000) {
    auto listener = Listener::Open("--http-port", "127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    const auto begin = [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      reply->on_gone = [this] { ++num_gone_; };
      reply->on_drained = [this] { ++num_drained_; };
      const std::lock_guard<std::mutex> lock(mutex_);
      request_ = std::move(request);
      reply_ = std::move(reply);
    };
    server_ = HttpServer::Start(*std::move(listener), options, {{"/x", [] { return HttpResponse{.body = "x"}; }}},
                                {{"/ask", {.max_body_bytes = max_body_bytes, .begin = begin}}});
  }
  ~HttpRouteTest() override { server_->Stop(); }

  // The reply to the next request that comes.
  std::shared_ptr<HttpReply> Reply() {
    std::shared_ptr<HttpReply> reply;
    WaitFor([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      reply = std::exchange(reply_, nullptr);
      return reply != nullptr;
    });
    return reply;
  }
  HttpRequest Request() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return request_;
  }
  static bool WaitFor(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    ADD_FAILURE() << "waited in vain";
    return false;
  }
  static std::string Post(const std::string& body, const std::string& headers = "") {
    return "POST /ask?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
           "\r\n" + body;
  }

  std::mutex mutex_;
  HttpRequest request_;
  std::shared_ptr<HttpReply> reply_;
  std::atomic<int> num_gone_{0}, num_drained_{0};
};

TEST_F(HttpRouteTest, TakesABodyAndAnswersLater) {
  StartRoute();
  Client client(port());
  client.Send(Post("the question", "X-Request-Id: 7\r\n"));
  const auto reply = Reply();
  const HttpRequest request = Request();
  EXPECT_EQ(request.target, "/ask?a=b");
  EXPECT_EQ(request.body, "the question");
  EXPECT_EQ(request.headers.at("x-request-id"), "7");
  EXPECT_NE(request.peer.find("127.0.0.1"), std::string::npos) << request.peer;
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u) << "others do not wait";
  reply->Send({.status = 429, .body = "the answer", .headers = {{"Retry-After", "3"}}});
  const std::string answer = client.ReadUntil("the answer");
  EXPECT_EQ(answer.rfind("HTTP/1.1 429 ", 0), 0u) << answer;
  EXPECT_NE(answer.find("Content-Length: 10\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Retry-After: 3\r\n"), std::string::npos) << answer;
  client.Send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.ReceiveAll().find(" 200 "), std::string::npos) << "the connection is kept";
  EXPECT_EQ(num_gone_, 0);
}

TEST_F(HttpRouteTest, StreamsABodyInPieces) {
  StartRoute();
  Client client(port());
  client.Send(Post("") + Post("next"));  // the second before the first is answered
  const auto reply = Reply();
  reply->Send({.content_type = "text/event-stream", .body = "one"}, true);
  const std::string head = client.ReadUntil("3\r\none\r\n");
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("Content-Type: text/event-stream\r\n"), std::string::npos) << head;
  std::thread other([&] { reply->Write(std::string(300, 'y')); });
  other.join();
  EXPECT_EQ(client.ReadUntil("\r\n"), "12c\r\n");
  EXPECT_EQ(client.ReadUntil("y\r\n"), std::string(300, 'y') + "\r\n");
  WaitFor([&] { return reply->waiting_bytes() == 0 && num_drained_ >= 1; });
  reply->End();
  reply->Write("too late");
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "0\r\n\r\n");
  Reply()->Send({.body = "second"});
  EXPECT_NE(client.ReadUntil("second").find(" 200 "), std::string::npos);
  EXPECT_EQ(Request().body, "next");
  EXPECT_EQ(num_gone_, 0);
}

TEST_F(HttpRouteTest, AnOldClientGetsThePiecesWithoutFraming) {
  StartRoute();
  Client client(port());
  client.Send("POST /ask HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi");
  const auto reply = Reply();
  reply->Send({.body = "a"}, true);
  reply->Write("b");
  reply->End();
  const std::string answer = client.ReceiveAll();
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n")), "\r\n\r\nab");
  EXPECT_EQ(num_gone_, 0);
}

TEST_F(HttpRouteTest, TakesABodyInChunksAndAsksForOneThatWaits) {
  StartRoute();
  Client client(port());
  client.Send("POST /ask HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("2\r\nhi\r\n3\r\n yo\r\n0\r\n\r\n");
  Reply()->Send({.body = "yes"});
  EXPECT_NE(client.ReadUntil("yes"), "");
  EXPECT_EQ(Request().body, "hi yo");
}

TEST_F(HttpRouteTest, ABodyOverTheLimitIsRefused) {
  StartRoute({}, 1000);
  EXPECT_NE(Ask(Post(std::string(1001, 'x'))).find(" 413 "), std::string::npos);
  EXPECT_NE(Ask("POST /ask HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x'))
                .find(" 413 "),
            std::string::npos);
  // A route's limit is its own.
  server_->Stop();
  StartRoute({}, 100'000);
  EXPECT_NE(Ask("GET /x HTTP/1.1\r\nContent-Length: 90000\r\n\r\n" + std::string(90000, 'x')).find(" 413 "),
            std::string::npos);
  Client client(port());
  client.Send(Post(std::string(90000, 'x')));
  Reply()->Send({.body = "taken"});
  EXPECT_NE(client.ReadUntil("taken"), "");
}

TEST_F(HttpRouteTest, OnlyPostReachesARoute) {
  StartRoute();
  EXPECT_EQ(Ask("GET /ask HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 405 ", 0), 0u);
}

TEST_F(HttpRouteTest, ABodyThatDoesNotComeIsCutInTime) {
  StartRoute({.timeout = 200ms});
  Client client(port());
  client.Send("POST /ask HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.ReceiveAll(), "");
  ExpectTimeout();
}

TEST_F(HttpRouteTest, AnAnswerMayTakeLongerThanARequest) {
  StartRoute({.timeout = 200ms, .idle_timeout = 200ms});
  Client client(port());
  client.Send(Post("hi"));
  const auto reply = Reply();
  std::this_thread::sleep_for(500ms);
  reply->Send({.body = "at "}, true);
  std::this_thread::sleep_for(500ms);
  reply->Write("last");
  reply->End();
  EXPECT_NE(client.ReadUntil("0\r\n\r\n").find("last"), std::string::npos);
  EXPECT_TRUE(client.ClosedWithin(10s)) << "nothing more is asked";
  EXPECT_EQ(num_gone_, 0);
}

TEST_F(HttpRouteTest, WhoLeavesIsNoticedBeforeAndInAnAnswer) {
  StartRoute();
  std::shared_ptr<HttpReply> reply;
  {
    Client client(port());
    client.Send(Post("hi"));
    reply = Reply();
  }
  WaitFor([&] { return num_gone_ == 1; });
  reply->Send({.body = "for nobody"});
  {
    Client client(port());
    client.Send(Post("hi"));
    reply = Reply();
    reply->Send({.body = "some"}, true);
    EXPECT_NE(client.ReadUntil("some"), "");
  }
  WaitFor([&] { return num_gone_ == 2; });
  reply->Write("more");
  reply->End();
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u);
}

TEST_F(HttpRouteTest, WhoDoesNotReadIsSeenAndCutInTime) {
  StartRoute({.timeout = 500ms});
  Client client(port(), "127.0.0.1", 4096);
  client.Send(Post("hi"));
  const auto reply = Reply();
  reply->Send({}, true);
  for (int i = 0; i < 16; ++i) reply->Write(std::string(1 << 20, 'x'));
  EXPECT_GT(reply->waiting_bytes(), 0);
  WaitFor([&] { return num_gone_ == 1; });
}

TEST_F(HttpRouteTest, AReplyThatIsLetGoCutsItsConnection) {
  StartRoute();
  Client client(port());
  client.Send(Post("hi"));
  Reply().reset();
  EXPECT_EQ(client.ReceiveAll(), "");
}

TEST_F(HttpRouteTest, RepliesMayOutliveTheServer) {
  StartRoute();
  Client client(port());
  client.Send(Post("hi"));
  const auto reply = Reply();
  reply->Send({.body = "some"}, true);
  EXPECT_NE(client.ReadUntil("some"), "");
  server_->Stop();
  EXPECT_EQ(num_gone_, 1);
  reply->Write("more");
  reply->End();
}

}  // namespace
}  // namespace sluice
