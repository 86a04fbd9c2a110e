// A small HTTP/1.1 server for probes and scrapes, on one thread of its own.
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

// Answers GET and HEAD of fixed paths; keep-alive; requests up to 8 KiB of header and 64 KiB of body.
class HttpServer {
 public:
  // Called on the server's thread; must return within milliseconds.
  using Handler = std::function<HttpResponse()>;

  // Serves at once. `handlers`: by path.
  static std::unique_ptr<HttpServer> Start(Listener listener, const HttpOptions& options,
                                           std::map<std::string, Handler> handlers);
  ~HttpServer();  // Stop()

  const SocketAddress& address() const;
  ListenerSnapshot Stats() const;

  // Closes all connections and ends the thread. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
