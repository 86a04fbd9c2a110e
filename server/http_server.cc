#include "server/http_server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "server/net/acceptor.h"

namespace sluice {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;

// What is answered, by path.
struct Paths {
  std::map<std::string, HttpServer::Handler> handlers;
  std::map<std::string, HttpRoute> routes;
};

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

std::string PathOf(const http::request<http::string_body>& request) {
  return std::string(request.target().substr(0, request.target().find('?')));
}

// By a handler; nullopt if the request is a route's.
std::optional<HttpResponse> AnswerNow(const Paths& paths, const http::request<http::string_body>& request) {
  const std::string path = PathOf(request);
  const auto handler = paths.handlers.find(path);
  const bool has_route = paths.routes.contains(path);
  if (has_route && request.method() == http::verb::post) return std::nullopt;
  if (handler == paths.handlers.end()) return has_route ? Problem(405, "only POST") : Problem(404, "no such path");
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return Problem(405, "only GET and HEAD");
  }
  return handler->second();
}

template <class Message>
void SetHead(const HttpResponse& response, bool keep_alive, unsigned version, Message* message) {
  message->version(version);
  message->result(unsigned(response.status));
  message->set(http::field::content_type, response.content_type);
  message->set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : response.headers) message->set(name, value);
  message->keep_alive(keep_alive);
}

// The server's thread, for those who outlive it.
class Loop {
 public:
  explicit Loop(asio::io_context* context) : context_(context) {}
  template <class Task>
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (context_ != nullptr) asio::post(*context_, std::move(task));
  }
  void End() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    context_ = nullptr;
  }

 private:
  Mutex mutex_;
  asio::io_context* context_ ABSL_GUARDED_BY(mutex_);
};

// The live connections, so that the one that has waited longest can make room.
class Connection;
struct Crowd {
  std::set<Connection*> connections;
  ConnectionStats stats;
  std::shared_ptr<Loop> loop;
};

class Reply;

// One connection; owns itself through the handlers of its pending operation, or while an answer is awaited. All on the
// server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Connection(tcp::socket socket, const SocketAddress& peer, const Paths& paths, const HttpOptions& options,
             Crowd* crowd)
      : stream_(std::move(socket)),
        peer_(PeerKeyOf(peer)),
        peer_name_(peer.ToString()),
        paths_(paths),
        options_(options),
        crowd_(crowd) {
    crowd_->connections.insert(this);
    crowd_->stats.SetOpen(int64_t(crowd_->connections.size()));
  }
  ~Connection() { Leave(); }

  const PeerKey& peer() const { return peer_; }
  // In the middle of its answer, or else waiting for (the rest of) a request; since when. An answer of which nothing
  // waits for the client counts as begun just now.
  bool answering() const { return answering_; }
  TimePoint since() const { return since_; }

  void ReadRequest() {
    answering_ = false;
    since_ = std::chrono::steady_clock::now();
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    uint64_t most = kMaxBodyBytes;  // until the path is known
    for (const auto& [path, route] : paths_.routes) most = std::max(most, route.max_body_bytes);
    parser_->body_limit(most);
    stream_.expires_after(options_.timeout);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](beast::error_code error, size_t) { self->OnHeader(error); });
  }

  // From the reply to the request of this number; others are too late.
  void Send(uint64_t number, HttpResponse response, bool more);
  void Append(uint64_t number, const std::string& piece);
  void End(uint64_t number);
  void LetGo(uint64_t number);

  // Ends it, and tells the reply that is awaited.
  void Close();

  // The connection no longer counts; its pending operation ends with an error.
  void Cut(CutReason reason) {
    crowd_->stats.CountCut(reason);
    Close();
  }
  // As Cut; the client's socket is left to the caller, open.
  UniqueFd Evict() {
    crowd_->stats.CountCut(CutReason::kEvicted);
    UniqueFd fd(stream_.socket().release());
    Close();
    return fd;
  }

 private:
  void OnHeader(beast::error_code error) {
    if (error || parser_->is_done()) return OnRequest(error);
    const auto route = paths_.routes.find(PathOf(parser_->get()));
    const uint64_t limit = route == paths_.routes.end() ? kMaxBodyBytes : route->second.max_body_bytes;
    if (parser_->content_length().value_or(0) > limit) return OnRequest(http::error::body_limit);
    parser_->body_limit(limit);
    stream_.expires_after(options_.timeout);
    if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) return ReadBody();
    static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue, sizeof kContinue - 1),
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (error) return self->Close();
                        self->ReadBody();
                      });
  }

  void ReadBody() {
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
    keep_alive_ = request.keep_alive();
    version_ = request.version();
    if (std::optional<HttpResponse> answer = AnswerNow(paths_, request)) {
      return Write(*std::move(answer), keep_alive_, version_);
    }
    Begin(paths_.routes.at(PathOf(request)));
  }

  // Hands the request to its route. Until the answer is through, the client's leaving is looked for.
  void Begin(const HttpRoute& route);

  void WatchClient() {
    if (watching_ || buffer_.size() >= kMaxHeaderBytes) return;
    watching_ = true;
    stream_.expires_never();
    stream_.async_read_some(buffer_.prepare(kMaxHeaderBytes),
                            [self = shared_from_this()](beast::error_code error, size_t count) {
                              self->watching_ = false;
                              self->buffer_.commit(count);  // of the next request
                              if (self->finished_) return self->WaitForNext();
                              if (error) return self->Close();
                              self->WatchClient();
                            });
  }

  // Starts the next write of a body in pieces.
  void Pump() {
    if (writing_) return;
    if (out_.empty()) return ended_ ? Finish() : TellDrained();
    writing_ = true;
    in_flight_ = std::exchange(out_, "");
    in_flight_body_ = std::exchange(out_body_, 0);
    since_ = std::chrono::steady_clock::now();
    stream_.expires_after(options_.timeout);
    asio::async_write(stream_, asio::buffer(in_flight_), [self = shared_from_this()](beast::error_code error, size_t) {
      if (error) return self->Close();
      self->writing_ = false;
      self->since_ = TimePoint::max();
      self->TellTaken(self->in_flight_body_);
      self->Pump();
    });
  }
  void TellTaken(int64_t body_bytes);
  void TellDrained();

  // The answer is through.
  void Finish() {
    reply_.reset();
    ++number_;
    const auto self = std::exchange(awaiting_, nullptr);
    if (!keep_alive_) return Close();
    finished_ = true;
    // Of its reading the next request makes another one, with a deadline.
    beast::error_code ignored;
    if (watching_) {
      stream_.socket().cancel(ignored);
    } else {
      WaitForNext();
    }
  }

  void Write(HttpResponse answer, bool keep_alive, unsigned version) {
    answering_ = true;
    since_ = std::chrono::steady_clock::now();
    response_ = {};
    SetHead(answer, keep_alive, version, &response_);
    response_.body() = std::move(answer.body);
    response_.prepare_payload();
    if (head_) response_.body().clear();  // the length stays that of the body a GET would bring
    stream_.expires_after(options_.timeout);
    serializer_.emplace(response_);
    serializer_->split(false);
    const auto done = [self = shared_from_this(), keep_alive](beast::error_code error, size_t) {
      if (error) return self->Close();
      if (self->awaiting_ != nullptr) return self->Finish();
      keep_alive ? self->WaitForNext() : self->Close();
    };
    if (head_) {
      http::async_write_header(stream_, *serializer_, done);
    } else {
      http::async_write(stream_, *serializer_, done);
    }
  }

  // The deadline of a request's header begins with its first bytes.
  void WaitForNext() {
    finished_ = false;
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

  void Leave() {
    crowd_->connections.erase(this);
    crowd_->stats.SetOpen(int64_t(crowd_->connections.size()));
  }

  beast::tcp_stream stream_;
  const PeerKey peer_;
  const std::string peer_name_;
  const Paths& paths_;
  const HttpOptions& options_;
  Crowd* const crowd_;
  bool answering_ = false;
  TimePoint since_ = std::chrono::steady_clock::now();
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  bool head_ = false;
  bool keep_alive_ = false;
  unsigned version_ = 11;

  // Of a request that a route answers.
  uint64_t number_ = 0;
  std::shared_ptr<Connection> awaiting_;  // this, until the answer is through
  std::weak_ptr<Reply> reply_;
  bool begun_ = false, ended_ = false, chunked_ = false;
  bool writing_ = false;   // in_flight_
  bool watching_ = false;  // for the client's leaving
  bool finished_ = false;  // what it watched for is over
  std::string out_, in_flight_;  // as they go over the wire
  int64_t out_body_ = 0, in_flight_body_ = 0;
};

class Reply final : public HttpReply {
 public:
  Reply(std::shared_ptr<Loop> loop, std::weak_ptr<Connection> connection, uint64_t number)
      : loop_(std::move(loop)), connection_(std::move(connection)), number_(number) {}
  ~Reply() override { Post(&Connection::LetGo); }

  void Send(HttpResponse response, bool more) override {
    if (more) waiting_bytes_ += int64_t(response.body.size());
    Post(&Connection::Send, std::move(response), more);
  }
  void Write(std::string piece) override {
    waiting_bytes_ += int64_t(piece.size());
    Post(&Connection::Append, std::move(piece));
  }
  void End() override { Post(&Connection::End); }
  int64_t waiting_bytes() const override { return waiting_bytes_; }
  void Taken(int64_t bytes) { waiting_bytes_ -= bytes; }

 private:
  template <class Method, class... Args>
  void Post(Method method, Args... args) {
    loop_->Post([connection = connection_, number = number_, method, ... args = std::move(args)]() mutable {
      if (const auto known = connection.lock()) ((*known).*method)(number, std::move(args)...);
    });
  }

  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<Connection> connection_;
  const uint64_t number_;
  std::atomic<int64_t> waiting_bytes_{0};
};

void Connection::Begin(const HttpRoute& route) {
  answering_ = true;
  since_ = TimePoint::max();
  begun_ = ended_ = chunked_ = false;
  awaiting_ = shared_from_this();
  const auto reply = std::make_shared<Reply>(crowd_->loop, weak_from_this(), number_);
  reply_ = reply;
  HttpRequest request;
  request.peer = peer_name_;
  request.target = std::string(parser_->get().target());
  for (const auto& field : parser_->get()) {
    request.headers.emplace(absl::AsciiStrToLower(std::string(field.name_string())), std::string(field.value()));
  }
  request.body = std::move(parser_->get().body());
  WatchClient();
  route.begin(std::move(request), reply);
}

void Connection::Send(uint64_t number, HttpResponse response, bool more) {
  if (number != number_ || awaiting_ == nullptr || std::exchange(begun_, true)) return;
  ended_ = !more;
  if (!more) return Write(std::move(response), keep_alive_, version_);
  chunked_ = version_ >= 11;
  keep_alive_ = keep_alive_ && chunked_;  // without chunks the end of the body is the end of the connection
  http::response<http::empty_body> head;
  SetHead(response, keep_alive_, version_, &head);
  if (chunked_) head.chunked(true);
  std::ostringstream text;
  text << head.base();
  out_ = text.str();
  Append(number, response.body);
  Pump();
}

void Connection::Append(uint64_t number, const std::string& piece) {
  if (number != number_ || awaiting_ == nullptr || !begun_ || ended_ || piece.empty()) return;
  if (chunked_) absl::StrAppend(&out_, absl::Hex(piece.size()), "\r\n");
  absl::StrAppend(&out_, piece, chunked_ ? "\r\n" : "");
  out_body_ += int64_t(piece.size());
  Pump();
}

void Connection::End(uint64_t number) {
  if (number != number_ || awaiting_ == nullptr || !begun_ || std::exchange(ended_, true)) return;
  if (chunked_) out_ += "0\r\n\r\n";
  Pump();
}

void Connection::LetGo(uint64_t number) {
  if (number == number_ && awaiting_ != nullptr && !ended_) Close();
}

void Connection::TellTaken(int64_t body_bytes) {
  if (const auto reply = reply_.lock()) reply->Taken(body_bytes);
}

void Connection::TellDrained() {
  if (const auto reply = reply_.lock(); reply != nullptr && reply->on_drained) reply->on_drained();
}

void Connection::Close() {
  Leave();
  beast::error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.close();
  const auto self = std::exchange(awaiting_, nullptr);
  const auto reply = reply_.lock();
  reply_.reset();
  if (reply != nullptr && reply->on_gone) reply->on_gone();
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(Listener listener, const HttpOptions& options, Paths paths)
      : options_(options),
        paths_(std::move(paths)),
        acceptor_(std::move(listener), "http", 1, &crowd_.stats),
        readable_(context_, dup(acceptor_.listener().fd())) {
    crowd_.loop = std::make_shared<Loop>(&context_);
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
    crowd_.loop->End();
    while (!crowd_.connections.empty()) {
      const auto connection = (*crowd_.connections.begin())->shared_from_this();
      connection->Close();
    }
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
    const auto refuse = [&](CutReason reason) {
      crowd_.stats.CountCut(reason);
      Hold(std::move(accepted.fd));
    };
    if (!trusted && !MakeRoom(of_peer, options_.max_connections_per_peer)) {
      return refuse(CutReason::kMaxConnectionsPerPeer);
    }
    if (!MakeRoom(of_anyone, options_.max_connections)) return refuse(CutReason::kMaxConnections);
    const auto protocol = address().family() == AF_INET6 ? tcp::v6() : tcp::v4();
    tcp::socket socket(context_, protocol, accepted.fd.release());
    std::make_shared<Connection>(std::move(socket), accepted.peer, paths_, options_, &crowd_)->ReadRequest();
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
    Hold(oldest->Evict());
    return true;
  }

  void Hold(UniqueFd refused) {
    acceptor_.Refuse(std::move(refused));
    if (!std::exchange(closing_refused_, true)) CloseRefused();
  }

  void CloseRefused() {
    closing_refused_ = acceptor_.CloseRefused();
    if (!closing_refused_) return;
    close_refused_.expires_after(kRetryTime);
    close_refused_.async_wait([this](beast::error_code cancelled) {
      if (!cancelled) CloseRefused();
    });
  }

  const HttpOptions options_;
  const Paths paths_;
  Crowd crowd_;
  Acceptor acceptor_;
  bool crowded_ = false;  // the last newcomers had to be made room for
  asio::io_context context_{1};  // destroys the connections that are left, which leave the crowd
  asio::posix::stream_descriptor readable_;
  asio::steady_timer retry_{context_};
  asio::steady_timer close_refused_{context_};
  bool closing_refused_ = false;  // close_refused_ runs
  std::thread thread_;
};

std::unique_ptr<HttpServer> HttpServer::Start(Listener listener, const HttpOptions& options,
                                              std::map<std::string, Handler> handlers,
                                              std::map<std::string, HttpRoute> routes) {
  return std::unique_ptr<HttpServer>(new HttpServer(
      std::make_unique<Impl>(std::move(listener), options, Paths{std::move(handlers), std::move(routes)})));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
const SocketAddress& HttpServer::address() const { return impl_->address(); }
ListenerSnapshot HttpServer::Stats() const { return impl_->Stats(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace sluice
