#include "server/http_server.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/net/acceptor.h"

namespace sluice {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;

using Handlers = std::map<std::string, HttpServer::Handler>;

constexpr uint32_t kMaxHeaderBytes = 8 << 10;
constexpr uint64_t kMaxBodyBytes = 64 << 10;
// Before the next try when the system hands over no connections.
constexpr std::chrono::milliseconds kRetryTime{100};
// Before the next look while each newcomer drives another out: who comes again at once must not wake us each time.
constexpr std::chrono::milliseconds kCrowdedPause{10};
// An answer that is not taken for so long may make room for others.
constexpr std::chrono::seconds kStallTime{1};

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

// The live connections, so that the one that has waited longest can make room.
class Connection;
struct Crowd {
  std::set<Connection*> connections;
  ConnectionStats stats;
};

// One connection; owns itself through the handlers of its pending operation. All on the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const SocketAddress& peer, const Handlers& handlers, const HttpOptions& options,
             Crowd* crowd)
      : stream_(std::move(socket)), peer_(PeerKeyOf(peer)), handlers_(handlers), options_(options), crowd_(crowd) {
    crowd_->connections.insert(this);
    crowd_->stats.SetOpen(int64_t(crowd_->connections.size()));
  }
  ~Connection() { Leave(); }

  const PeerKey& peer() const { return peer_; }
  // In the middle of its answer, or else waiting for (the rest of) a request; since when.
  bool answering() const { return answering_; }
  std::chrono::steady_clock::time_point since() const { return since_; }

  void ReadRequest() {
    answering_ = false;
    since_ = std::chrono::steady_clock::now();
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxBodyBytes);
    stream_.expires_after(options_.timeout);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](beast::error_code error, size_t) { self->OnHeader(error); });
  }

  // The connection no longer counts; its pending operation ends with an error.
  void Cut(CutReason reason) {
    crowd_->stats.CountCut(reason);
    Close();
  }

 private:
  void OnHeader(beast::error_code error) {
    if (error || parser_->is_done()) return OnRequest(error);
    stream_.expires_after(options_.timeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) { self->OnRequest(error); });
  }

  void OnRequest(beast::error_code error) {
    if (error == http::error::header_limit || error == http::error::body_limit) {
      return Write(Problem(413, "the request is too large"), false, 11);
    }
    if (error == beast::error::timeout) return Cut(CutReason::kRequestTimeout);
    // The client closed, or does not speak HTTP: nothing to answer.
    if (error) return Close();
    const auto& request = parser_->get();
    head_ = request.method() == http::verb::head;
    Write(Answer(handlers_, request), request.keep_alive(), request.version());
  }

  void Write(HttpResponse answer, bool keep_alive, unsigned version) {
    answering_ = true;
    since_ = std::chrono::steady_clock::now();
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
      self->WaitForNext();
    };
    if (head_) {
      http::async_write_header(stream_, *serializer_, done);
    } else {
      http::async_write(stream_, *serializer_, done);
    }
  }

  // The deadline of a request's header begins with its first bytes.
  void WaitForNext() {
    if (buffer_.size() > 0) return ReadRequest();
    answering_ = false;
    since_ = std::chrono::steady_clock::now();
    stream_.expires_after(options_.idle_timeout);
    stream_.async_read_some(buffer_.prepare(kMaxHeaderBytes),
                            [self = shared_from_this()](beast::error_code error, size_t count) {
                              if (error) return self->Close();
                              self->buffer_.commit(count);
                              self->ReadRequest();
                            });
  }

  void Close() {
    Leave();
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.close();
  }

  void Leave() {
    crowd_->connections.erase(this);
    crowd_->stats.SetOpen(int64_t(crowd_->connections.size()));
  }

  beast::tcp_stream stream_;
  const PeerKey peer_;
  const Handlers& handlers_;
  const HttpOptions& options_;
  Crowd* const crowd_;
  bool answering_ = false;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  bool head_ = false;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(Listener listener, const HttpOptions& options, Handlers handlers)
      : options_(options),
        handlers_(std::move(handlers)),
        acceptor_(std::move(listener), "http", 1, &crowd_.stats),
        readable_(context_, dup(acceptor_.listener().fd())) {
    Accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Impl() { Stop(); }

  const SocketAddress& address() const { return acceptor_.listener().address(); }
  ListenerSnapshot Stats() const { return ListenerSnapshot::Of("http", crowd_.stats); }

  void Stop() {
    if (!thread_.joinable()) return;
    context_.stop();
    thread_.join();
  }

 private:
  void Accept() {
    readable_.async_wait(asio::posix::descriptor_base::wait_read, [this](beast::error_code error) {
      if (error) return;
      crowded_ = false;
      while (std::optional<AcceptedConnection> accepted = acceptor_.Next()) Admit(*std::move(accepted));
      if (!acceptor_.must_wait() && !crowded_) return Accept();
      retry_.expires_after(acceptor_.must_wait() ? kRetryTime : kCrowdedPause);
      retry_.async_wait([this](beast::error_code cancelled) {
        if (!cancelled) Accept();
      });
    });
  }

  void Admit(AcceptedConnection accepted) {
    const PeerKey peer = PeerKeyOf(accepted.peer);
    const bool trusted = std::any_of(options_.trusted_proxies.begin(), options_.trusted_proxies.end(),
                                     [&](const Network& network) { return network.Contains(accepted.peer); });
    const auto of_peer = [&](const Connection* connection) { return connection->peer() == peer; };
    const auto of_anyone = [](const Connection*) { return true; };
    if (!trusted && !MakeRoom(of_peer, options_.max_connections_per_peer)) {
      return crowd_.stats.CountCut(CutReason::kMaxConnectionsPerPeer);
    }
    if (!MakeRoom(of_anyone, options_.max_connections)) return crowd_.stats.CountCut(CutReason::kMaxConnections);
    const auto protocol = address().family() == AF_INET6 ? tcp::v6() : tcp::v4();
    tcp::socket socket(context_, protocol, accepted.fd.release());
    std::make_shared<Connection>(std::move(socket), accepted.peer, handlers_, options_, &crowd_)->ReadRequest();
  }

  // Closes the connection that has waited longest among the `counted`, if there are `max` of these. False: there are,
  // and all of them are being answered.
  template <class Counted>
  bool MakeRoom(const Counted& counted, int max) {
    int count = 0;
    Connection* oldest = nullptr;
    const auto stalled_before = std::chrono::steady_clock::now() - kStallTime;
    for (Connection* connection : crowd_.connections) {
      if (!counted(connection)) continue;
      ++count;
      if (connection->answering() && connection->since() > stalled_before) continue;
      if (oldest == nullptr || std::pair(connection->answering(), connection->since()) <
                                   std::pair(oldest->answering(), oldest->since())) {
        oldest = connection;
      }
    }
    if (count < max) return true;
    crowded_ = true;
    if (oldest == nullptr) return false;
    oldest->Cut(CutReason::kEvicted);
    return true;
  }

  const HttpOptions options_;
  const Handlers handlers_;
  Crowd crowd_;
  Acceptor acceptor_;
  bool crowded_ = false;  // the last newcomers had to be made room for
  asio::io_context context_{1};  // destroys the connections that are left, which leave the crowd
  asio::posix::stream_descriptor readable_;
  asio::steady_timer retry_{context_};
  std::thread thread_;
};

std::unique_ptr<HttpServer> HttpServer::Start(Listener listener, const HttpOptions& options,
                                              std::map<std::string, Handler> handlers) {
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::make_unique<Impl>(std::move(listener), options, std::move(handlers))));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
const SocketAddress& HttpServer::address() const { return impl_->address(); }
ListenerSnapshot HttpServer::Stats() const { return impl_->Stats(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace sluice
