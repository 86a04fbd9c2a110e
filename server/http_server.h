// A small HTTP/1.1 server for probes and scrapes, on one thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

struct HttpOptions {
  std::string host = "0.0.0.0";
  int port = 0;  // 0: any free one
  // A connection that neither sends a whole request nor takes its answer for so long is closed.
  std::chrono::milliseconds timeout{10000};
  int max_connections = 256;  // more are closed at once
};

// Answers GET and HEAD of fixed paths; keep-alive; requests up to 8 KiB of header and 64 KiB of body.
class HttpServer {
 public:
  // Called on the server's thread; must return within milliseconds.
  using Handler = std::function<HttpResponse()>;

  // Listens and serves at once. `handlers`: by path. An error names the address and what is wrong with it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           std::map<std::string, Handler> handlers);
  ~HttpServer();  // Stop()

  int port() const;

  // Closes all connections and ends the thread. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
