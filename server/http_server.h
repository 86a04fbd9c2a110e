// A small HTTP/1.1 server on one thread of its own: for probes and scrapes, which it answers at once, and for requests
// with a body, which others answer when they can, in one piece or in many.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/net/connection_stats.h"
#include "server/net/listener.h"

namespace sluice {

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::map<std::string, std::string> headers = {};  // beside those that the server sets
};

struct HttpOptions {
  // For the header of a request, for its body, and for its answer to be taken: each must be through in so long.
  std::chrono::milliseconds timeout{10000};
  // A connection that asks nothing more is closed after so long.
  std::chrono::milliseconds idle_timeout{75000};
  // Beyond these the connection that has waited longest for (the rest of) a request makes room for the new one; only
  // if all are being answered is the new one closed.
  int max_connections = 256;
  int max_connections_per_peer = 64;     // see PeerKey
  std::vector<Network> trusted_proxies = {};  // not limited per peer
};

struct HttpRequest {
  std::string target;                          // with its query
  std::map<std::string, std::string> headers;  // names in lower case; of a name that comes twice the first
  std::string body;
  std::string peer;  // address and port of the client
};

// The answer to one request, by whoever has it: Send without `more`; or Send with it, any number of Write, End. All
// thread-safe and quick. Who lets go of it before the end cuts the connection. Once the client is gone everything is
// ignored.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  // Status, type and body; with `more`, the beginning of a body of unknown length.
  virtual void Send(HttpResponse response, bool more = false) = 0;
  virtual void Write(std::string piece) = 0;
  virtual void End() = 0;
  // Bytes of a body in pieces that wait for the client. Its pace is the writer's matter, but a client that does not take
  // what is being written within HttpOptions::timeout is cut.
  virtual int64_t waiting_bytes() const = 0;

  // Set by the handler before it returns; called on the server's thread, or in HttpServer::Stop. `on_drained`: nothing
  // waits any more. `on_gone`, once at most: the client has left, or was cut, before the end; who closes his side of the
  // connection has left.
  std::function<void()> on_drained, on_gone;
};

// A path that takes POST.
struct HttpRoute {
  uint64_t max_body_bytes = 64 << 10;
  // Called on the server's thread; must return within milliseconds.
  std::function<void(HttpRequest, std::shared_ptr<HttpReply>)> begin;
};

// Answers GET and HEAD of fixed paths, and POST of routes; keep-alive; requests up to 8 KiB of header, and 64 KiB of
// body where no route says otherwise.
class HttpServer {
 public:
  // Called on the server's thread; must return within milliseconds.
  using Handler = std::function<HttpResponse()>;

  // Serves at once. Both by path.
  static std::unique_ptr<HttpServer> Start(Listener listener, const HttpOptions& options,
                                           std::map<std::string, Handler> handlers,
                                           std::map<std::string, HttpRoute> routes = {});
  ~HttpServer();  // Stop()

  const SocketAddress& address() const;
  ListenerSnapshot Stats() const;

  // Closes all connections, tells the replies, and ends the thread. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
