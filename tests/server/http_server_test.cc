// The HTTP server by itself: what it answers, what it refuses, whom it does not wait for.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

namespace sluice {
namespace {

// A plain socket, so that the bytes are ours.
class Client {
 public:
  explicit Client(int port) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval timeout{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }
  ~Client() { close(fd_); }

  void Send(const std::string& bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Until the text ends with `ending` or the connection is closed.
  std::string ReadUntil(const std::string& ending) {
    std::string text;
    char c = 0;
    while (recv(fd_, &c, 1, 0) == 1) {
      text += c;
      if (!ending.empty() && text.size() >= ending.size() &&
          text.compare(text.size() - ending.size(), ending.size(), ending) == 0) {
        break;
      }
    }
    return text;
  }
  std::string ReadAll() { return ReadUntil(""); }

 private:
  int fd_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(std::chrono::milliseconds timeout = std::chrono::seconds(10), int max_connections = 256) {
    auto server =
        HttpServer::Start({.host = "127.0.0.1", .port = 0, .timeout = timeout, .max_connections = max_connections},
                          {{"/x", []() -> HttpResponse { return {.content_type = "text/plain", .body = "the body"}; }},
                           {"/bad", []() -> HttpResponse { return {.status = 503, .body = "{}"}; }}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Ask(const std::string& request) {
    Client client(server_->port());
    client.Send(request);
    return client.ReadAll();
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
  Client client(server_->port());
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
  Start(std::chrono::milliseconds(200));
  Client half(server_->port()), silent(server_->port());
  half.Send("GET /x HT");
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n").rfind("HTTP/1.0 200 ", 0), 0u);
  EXPECT_EQ(half.ReadAll(), "");
  EXPECT_EQ(silent.ReadAll(), "");
}

TEST_F(HttpServerTest, ConnectionsOverTheLimitAreClosed) {
  Start(std::chrono::seconds(10), 2);
  Client first(server_->port()), second(server_->port());
  for (Client* client : {&first, &second}) {
    client->Send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_NE(client->ReadUntil("the body"), "");
  }
  EXPECT_EQ(Ask("GET /x HTTP/1.0\r\n\r\n"), "");
}

TEST_F(HttpServerTest, ABadAddressIsNamed) {
  EXPECT_NE(HttpServer::Start({.host = "nowhere"}, {}).status().message().find("--host"), std::string::npos);
  EXPECT_NE(HttpServer::Start({.host = "192.0.2.1"}, {}).status().message().find("--http-port"), std::string::npos);
}

}  // namespace
}  // namespace sluice
