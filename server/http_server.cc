#include "server/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"

namespace sluice {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;

using Handlers = std::map<std::string, HttpServer::Handler>;

constexpr uint32_t kMaxHeaderBytes = 8 << 10;
constexpr uint64_t kMaxBodyBytes = 64 << 10;

HttpResponse Problem(int status, absl::string_view message) {
  return {.status = status, .body = absl::StrCat("{\"error\":\"", message, "\"}\n")};
}

HttpResponse Answer(const Handlers& handlers, const http::request<http::string_body>& request) {
  const auto target = request.target();
  const std::string path(target.substr(0, target.find('?')));
  const auto handler = handlers.find(path);
  if (handler == handlers.end()) return Problem(404, "no such path");
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return Problem(405, "only GET and HEAD");
  }
  return handler->second();
}

// One connection; owns itself through the handlers of its pending operation. All on the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const Handlers& handlers, const HttpOptions& options, int* num_connections)
      : stream_(std::move(socket)), handlers_(handlers), options_(options), num_connections_(num_connections) {
    ++*num_connections_;
  }
  ~Connection() { --*num_connections_; }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxBodyBytes);
    stream_.expires_after(options_.timeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) { self->OnRead(error); });
  }

 private:
  void OnRead(beast::error_code error) {
    if (error == http::error::header_limit || error == http::error::body_limit) {
      return Write(Problem(413, "the request is too large"), false, 11);
    }
    // The client closed, was too slow, or does not speak HTTP: nothing to answer.
    if (error) return Close();
    const auto& request = parser_->get();
    head_ = request.method() == http::verb::head;
    Write(Answer(handlers_, request), request.keep_alive(), request.version());
  }

  void Write(HttpResponse answer, bool keep_alive, unsigned version) {
    response_ = {};
    response_.version(version);
    response_.result(unsigned(answer.status));
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.keep_alive(keep_alive);
    response_.body() = std::move(answer.body);
    response_.prepare_payload();
    if (head_) response_.body().clear();  // the length stays that of the body a GET would bring
    stream_.expires_after(options_.timeout);
    serializer_.emplace(response_);
    serializer_->split(false);
    const auto done = [self = shared_from_this(), keep_alive](beast::error_code error, size_t) {
      if (error || !keep_alive) return self->Close();
      self->Read();
    };
    if (head_) {
      http::async_write_header(stream_, *serializer_, done);
    } else {
      http::async_write(stream_, *serializer_, done);
    }
  }

  void Close() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.close();
  }

  beast::tcp_stream stream_;
  const Handlers& handlers_;
  const HttpOptions& options_;
  int* const num_connections_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  bool head_ = false;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, Handlers handlers) : options_(options), handlers_(std::move(handlers)) {}
  ~Impl() { Stop(); }

  absl::Status Listen() {
    const auto problem = [this](absl::string_view what, const beast::error_code& error) {
      return absl::UnavailableError(
          absl::StrCat("--http-port: cannot ", what, " ", options_.host, ":", options_.port, ": ", error.message()));
    };
    beast::error_code error;
    const auto address = asio::ip::make_address(options_.host, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat("--host: '", options_.host, "' is not an IP address; expected one such as 0.0.0.0, ::1"));
    }
    const tcp::endpoint endpoint(address, static_cast<unsigned short>(options_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (error) return problem("open", error);
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    acceptor_.bind(endpoint, error);
    if (error) return problem("bind", error);
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return problem("listen on", error);
    port_ = acceptor_.local_endpoint().port();
    Accept();
    thread_ = std::thread([this] { context_.run(); });
    return absl::OkStatus();
  }

  int port() const { return port_; }

  void Stop() {
    if (!thread_.joinable()) return;
    context_.stop();
    thread_.join();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (!error && num_connections_ < options_.max_connections) {
        std::make_shared<Connection>(std::move(socket), handlers_, options_, &num_connections_)->Read();
      }
      if (!error) return Accept();
      // Out of file descriptors, most likely: the connections that exist will end.
      LogWarning(absl::StrCat("http: accept failed: ", error.message()));
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this](beast::error_code cancelled) {
        if (!cancelled) Accept();
      });
    });
  }

  const HttpOptions options_;
  const Handlers handlers_;
  int num_connections_ = 0;
  int port_ = 0;
  asio::io_context context_{1};  // destroys the connections that are left, which count themselves out
  tcp::acceptor acceptor_{context_};
  asio::steady_timer retry_{context_};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              std::map<std::string, Handler> handlers) {
  auto impl = std::make_unique<Impl>(options, std::move(handlers));
  if (absl::Status status = impl->Listen(); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace sluice
