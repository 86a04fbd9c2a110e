#include "server/net/grpc_front.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "server/net/acceptor.h"
#include "server/net/peer_name.h"

namespace sluice {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr int kEventsAtATime = 256, kAcceptsAtATime = 256;
constexpr int kTickMs = 100;
// Between looks at the listener while connections are refused: who comes again at once must not wake us each time.
constexpr int kRefusalPauseMs = 10;
constexpr int64_t kNsPerMs = 1'000'000;
// For a client to take the last bytes of a connection that gRPC has closed.
constexpr int64_t kLastBytesNs = 2'000 * kNsPerMs;
// Lines about the same reason have at least this distance.
constexpr int64_t kLogDistanceNs = 10'000 * kNsPerMs;
// A connection with so many unfinished requests did not come by them honestly.
constexpr size_t kHoarding = 64;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Peer {
  Peer(const GrpcFrontOptions& options, int64_t now_ns)
      : budget(options.guard, now_ns), requests(options.requests_per_peer, now_ns) {}
  int num_connections = 0;
  int64_t shunned_until_ns = 0;
  PeerBudget budget;
  TokenBucket requests;
};

struct Connection;

// One end of a connection, as epoll knows it.
struct End {
  Connection* connection = nullptr;
  UniqueFd fd;
  bool watched = false;
  uint32_t events = 0;  // that epoll watches for
};

struct Connection {
  Connection(AcceptedConnection accepted, Peer* its_peer, bool is_trusted, const GuardLimits* limits, int64_t now_ns)
      : address(accepted.peer),
        peer(its_peer),
        trusted(is_trusted),
        accepted_ns(now_ns),
        guard(limits, trusted ? nullptr : &its_peer->budget, now_ns) {
    client.connection = grpc.connection = this;
    client.fd = std::move(accepted.fd);
  }

  End client, grpc;
  const SocketAddress address;
  Peer* const peer;
  const bool trusted;  // stands for many peers
  const int64_t accepted_ns;
  FrameGuard guard;
  std::string to_grpc;    // the last guard.held_bytes() wait for more
  std::string to_client;  // what the client's socket did not take
  bool client_ended = false;
  int64_t paused_until_ns = 0;  // nothing is read from the client
  int64_t close_at_ns = kNever;
  bool closed = false;

  size_t sendable_to_grpc() const { return to_grpc.size() - guard.held_bytes(); }
};

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Sends what the socket takes and removes it from `bytes`. False: the other side is gone.
bool Send(int fd, absl::string_view* bytes) {
  while (!bytes->empty()) {
    const ssize_t sent = send(fd, bytes->data(), bytes->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return WouldBlock();
    bytes->remove_prefix(size_t(sent));
  }
  return true;
}

std::string GoAway(uint32_t last_stream, absl::string_view reason) {
  constexpr char kType = 7;
  constexpr char kEnhanceYourCalm = 11;
  const std::string text = absl::StrCat("sluice: ", reason);
  std::string frame = {0, 0, char(8 + text.size()), kType, 0, 0, 0, 0, 0};
  for (const int shift : {24, 16, 8, 0}) frame += char(last_stream >> shift & 0xff);
  frame.append({0, 0, 0, kEnhanceYourCalm});
  return frame + text;
}

}  // namespace

// All but the constructor, Stop, StopIn and Stats runs on the front's thread.
class GrpcFront::Impl {
 public:
  Impl(Listener listener, const GrpcFrontOptions& options, HandOver hand_over, OnAble on_able)
      : options_(options),
        hand_over_(std::move(hand_over)),
        on_able_(std::move(on_able)),
        acceptor_(std::move(listener), options.name, kDescriptorsPerGrpcConnection, &stats_) {}
  ~Impl() { Stop(); }

  absl::Status Start() {
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!epoll_.valid() || !wake_.valid()) {
      return absl::UnavailableError(absl::StrCat(options_.name, ": no epoll: ", std::strerror(errno)));
    }
    Watch(wake_.get(), &wake_);
    WatchListener(true);
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  const SocketAddress& address() const { return acceptor_.listener().address(); }
  ListenerSnapshot Stats() const { return ListenerSnapshot::Of(options_.name, stats_); }

  void StopIn(std::chrono::milliseconds grace) {
    stop_at_ns_ = Clock::Real().NowNs() + grace.count() * kNsPerMs;
    Wake();
  }

  void Stop() {
    if (!thread_.joinable()) return;
    StopIn(std::chrono::milliseconds(0));
    thread_.join();
  }

 private:
  void Wake() {
    const uint64_t one = 1;
    if (write(wake_.get(), &one, sizeof one) < 0) return;  // it is awake
  }

  // --- the loop

  void Loop() {
    std::array<epoll_event, kEventsAtATime> events;
    while (true) {
      const int timeout_ms = pausing_ ? kRefusalPauseMs : Idle() ? -1 : kTickMs;
      const int num_events = epoll_wait(epoll_.get(), events.data(), kEventsAtATime, timeout_ms);
      now_ns_ = Clock::Real().NowNs();
      for (int i = 0; i < num_events; ++i) {
        void* const source = events[size_t(i)].data.ptr;
        if (source == &wake_) {
          uint64_t ignored = 0;
          if (read(wake_.get(), &ignored, sizeof ignored) > 0) acceptor_.Close();  // only ever woken to stop
        } else if (source == &acceptor_) {
          if (stop_at_ns_ == kNever) Accept();
        } else {
          OnEvent(static_cast<End*>(source), events[size_t(i)].events);
        }
      }
      if (now_ns_ >= stop_at_ns_) break;
      if (pausing_ && now_ns_ >= resume_at_ns_ && stop_at_ns_ == kNever) Accept();
      if (now_ns_ - last_tick_ns_ >= kTickMs * kNsPerMs) Tick();
      Bury();
    }
    for (const auto& connection : connections_) Close(connection.get());
    Bury();
  }

  bool Idle() const { return connections_.empty() && peers_.empty() && !refusing_ && stop_at_ns_ == kNever && able_; }

  void Tick() {
    last_tick_ns_ = now_ns_;
    const int64_t timeout_ns = options_.receive_timeout.count() * kNsPerMs;
    for (const auto& connection : connections_) {
      Connection* const c = connection.get();
      if (c->closed) continue;
      const int64_t waits_since_ns = c->guard.greeted() ? c->guard.oldest_incomplete_ns() : c->accepted_ns;
      const bool late = now_ns_ - timeout_ns > waits_since_ns;
      if (now_ns_ >= c->close_at_ns) {
        Close(c);
      } else if (late) {
        Cut(c, CutReason::kRequestTimeout);
      } else if (c->paused_until_ns != 0 && now_ns_ >= c->paused_until_ns) {
        c->paused_until_ns = 0;
        if (!c->client_ended && c->sendable_to_grpc() == 0) SetEvents(&c->client, c->client.events | EPOLLIN);
      }
    }
    refusing_ = acceptor_.CloseRefused();
    for (auto it = peers_.begin(); it != peers_.end();) {
      Peer& peer = it->second;
      const bool fresh = peer.num_connections == 0 && now_ns_ >= peer.shunned_until_ns &&
                         peer.budget.resets.FullAt(now_ns_) && peer.budget.control_frames.FullAt(now_ns_) &&
                         peer.requests.FullAt(now_ns_);
      it = fresh ? peers_.erase(it) : std::next(it);
    }
    if (acceptor_.must_wait() && !listening_ && !pausing_ && stop_at_ns_ == kNever) WatchListener(true);
    TellAble();
  }

  void TellAble() {
    const bool able = acceptor_.able() && (num_open_ < options_.max_connections || OldestSilent() != nullptr);
    if (able == able_) return;
    able_ = able;
    if (!able) LogWarning(absl::StrCat(options_.name, ": no more connections can be accepted: not ready"));
    if (able) LogInfo(absl::StrCat(options_.name, ": connections can be accepted again"));
    on_able_(able);
  }

  // --- connections come

  void Accept() {
    pausing_ = false;
    for (int i = 0; i < kAcceptsAtATime; ++i) {
      std::optional<AcceptedConnection> accepted = acceptor_.Next();
      if (!accepted.has_value()) break;
      Admit(*std::move(accepted));
    }
    resume_at_ns_ = now_ns_ + kRefusalPauseMs * kNsPerMs;
    WatchListener(!pausing_ && !acceptor_.must_wait());  // must_wait: until the next tick
    TellAble();
  }

  void Admit(AcceptedConnection accepted) {
    const auto refuse = [&](CutReason reason) {
      Count(reason, accepted.peer);
      acceptor_.Refuse(std::move(accepted.fd));
      pausing_ = refusing_ = true;
    };
    Peer& peer = peers_.try_emplace(PeerKeyOf(accepted.peer), options_, now_ns_).first->second;
    const bool trusted = std::any_of(options_.trusted_proxies.begin(), options_.trusted_proxies.end(),
                                     [&](const Network& network) { return network.Contains(accepted.peer); });
    if (!trusted) {
      if (now_ns_ < peer.shunned_until_ns) return refuse(CutReason::kShunned);
      if (peer.num_connections >= options_.max_connections_per_peer) return refuse(CutReason::kMaxConnectionsPerPeer);
    }
    if (num_open_ >= options_.max_connections) {
      Connection* const silent = OldestSilent();
      if (silent == nullptr) return refuse(CutReason::kMaxConnections);
      Cut(silent, CutReason::kEvicted);
    }
    connections_.push_back(
        std::make_unique<Connection>(std::move(accepted), &peer, trusted, &options_.guard, now_ns_));
    Connection* const c = connections_.back().get();
    ++peer.num_connections;
    stats_.SetOpen(++num_open_);
    SetEvents(&c->client, EPOLLIN);
  }

  // The connection that has been there longest without a request; null: all have had some.
  Connection* OldestSilent() const {
    Connection* oldest = nullptr;
    for (const auto& connection : connections_) {
      Connection* const c = connection.get();
      if (c->closed || c->guard.has_requested()) continue;
      if (oldest == nullptr || c->accepted_ns < oldest->accepted_ns) oldest = c;
    }
    return oldest;
  }

  // Gives gRPC its end.
  bool Connect(Connection* c) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
      acceptor_.OnNoDescriptors();
      return false;
    }
    c->grpc.fd.reset(pair[0]);
    UniqueFd theirs(pair[1]);
    if (!NamePeer(pair[0], c->address, ++num_connected_)) {
      Count(CutReason::kAcceptError, c->address);
      return false;
    }
    hand_over_(std::move(theirs));
    SetEvents(&c->grpc, EPOLLIN);
    return true;
  }

  // --- bytes come

  void OnEvent(End* end, uint32_t events) {
    Connection* const c = end->connection;
    const bool of_client = end == &c->client;
    if (!c->closed && (events & EPOLLOUT) != 0) of_client ? SendToClient(c, {}) : SendToGrpc(c, {});
    if (c->closed || !end->fd.valid() || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    const bool reading = (end->events & EPOLLIN) != 0, hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
    if (reading) {
      of_client ? ReadFromClient(c) : ReadFromGrpc(c);
    } else if (hung_up) {
      of_client ? Close(c) : OnGrpcClosed(c);
    }
  }

  void ReadFromClient(Connection* c) {
    const ssize_t count = recv(c->client.fd.get(), buffer_.data(), buffer_.size(), 0);
    if (count < 0) return WouldBlock() ? void() : Close(c);
    if (count == 0) return OnClientEnded(c);
    const absl::string_view bytes(buffer_.data(), size_t(count));
    const size_t unfinished_before = c->guard.num_unfinished();
    const uint64_t requests_before = c->guard.num_requests();
    const std::optional<CutReason> cut = c->guard.Read(bytes, now_ns_);
    num_unfinished_ += c->guard.num_unfinished() - unfinished_before;
    if (cut.has_value()) return Cut(c, *cut);
    const uint64_t num_requests = c->guard.num_requests() - requests_before;
    if (num_requests > 0 && !c->trusted) {
      const int64_t paid_ns = c->peer->requests.Borrow(double(num_requests), now_ns_);
      if (paid_ns > now_ns_) c->paused_until_ns = paid_ns;
    }
    SendToGrpc(c, bytes);
    if (c->paused_until_ns != 0 && !c->closed) SetEvents(&c->client, c->client.events & ~EPOLLIN);
    while (num_unfinished_ > options_.max_unfinished_requests) EvictHoarder();
  }

  // Closes the connection with the oldest unfinished request; if it hoards them, those of its peer that do so, too.
  void EvictHoarder() {
    Connection* oldest = nullptr;
    for (const auto& connection : connections_) {
      Connection* const c = connection.get();
      if (c->closed || c->guard.num_unfinished() == 0) continue;
      if (oldest == nullptr || c->guard.oldest_unfinished_ns() < oldest->guard.oldest_unfinished_ns()) oldest = c;
    }
    const bool hoarding = oldest->guard.num_unfinished() >= kHoarding;
    for (size_t i = 0; hoarding && i < connections_.size(); ++i) {
      Connection* const c = connections_[i].get();
      const bool its_peers = c != oldest && !c->closed && c->peer == oldest->peer;
      if (its_peers && c->guard.num_unfinished() >= kHoarding) Cut(c, CutReason::kUnfinishedRequests);
    }
    Cut(oldest, CutReason::kUnfinishedRequests);
  }

  void OnClientEnded(Connection* c) {
    c->client_ended = true;
    if (!c->grpc.fd.valid()) return Close(c);
    SetEvents(&c->client, c->client.events & ~EPOLLIN);
    if (c->sendable_to_grpc() == 0) shutdown(c->grpc.fd.get(), SHUT_WR);
  }

  // `bytes` have been read and follow on c->to_grpc.
  void SendToGrpc(Connection* c, absl::string_view bytes) {
    if (!c->grpc.fd.valid()) {
      absl::StrAppend(&c->to_grpc, bytes);
      if (!c->guard.greeted()) return;
      if (!Connect(c)) return Close(c);
      bytes = {};
    }
    absl::string_view sendable = bytes;
    if (!c->to_grpc.empty()) {
      absl::StrAppend(&c->to_grpc, bytes);
      sendable = c->to_grpc;
    }
    const absl::string_view all = sendable;
    sendable.remove_suffix(c->guard.held_bytes());
    const size_t num_sendable = sendable.size();
    if (!Send(c->grpc.fd.get(), &sendable)) return OnGrpcClosed(c);
    const size_t num_sent = num_sendable - sendable.size();
    if (c->to_grpc.empty()) {
      c->to_grpc = std::string(all.substr(num_sent));
    } else {
      c->to_grpc.erase(0, num_sent);
    }
    const bool stuck = !sendable.empty();
    SetEvents(&c->grpc, stuck ? c->grpc.events | EPOLLOUT : c->grpc.events & ~EPOLLOUT);
    if (c->client_ended) {
      if (!stuck) shutdown(c->grpc.fd.get(), SHUT_WR);
    } else {
      const bool reading = !stuck && c->paused_until_ns == 0;
      SetEvents(&c->client, reading ? c->client.events | EPOLLIN : c->client.events & ~EPOLLIN);
    }
  }

  void ReadFromGrpc(Connection* c) {
    const ssize_t count = recv(c->grpc.fd.get(), buffer_.data(), buffer_.size(), 0);
    if (count < 0 && WouldBlock()) return;
    if (count <= 0) return OnGrpcClosed(c);
    c->guard.OnServerBytes(size_t(count));
    SendToClient(c, {buffer_.data(), size_t(count)});
  }

  // `bytes` follow on c->to_client.
  void SendToClient(Connection* c, absl::string_view bytes) {
    absl::string_view rest = bytes;
    if (!c->to_client.empty()) {
      absl::StrAppend(&c->to_client, bytes);
      rest = c->to_client;
    }
    const size_t size = rest.size();
    if (!Send(c->client.fd.get(), &rest)) return Close(c);
    if (c->to_client.empty()) {
      c->to_client = std::string(rest);
    } else {
      c->to_client.erase(0, size - rest.size());
    }
    const bool stuck = !c->to_client.empty();
    if (!stuck && !c->grpc.fd.valid()) return Close(c);
    SetEvents(&c->client, stuck ? c->client.events | EPOLLOUT : c->client.events & ~EPOLLOUT);
    if (c->grpc.fd.valid()) SetEvents(&c->grpc, stuck ? c->grpc.events & ~EPOLLIN : c->grpc.events | EPOLLIN);
  }

  // gRPC is done with the connection; its last bytes are still to be taken.
  void OnGrpcClosed(Connection* c) {
    while (true) {
      const ssize_t count = recv(c->grpc.fd.get(), buffer_.data(), buffer_.size(), 0);
      if (count <= 0) break;
      c->to_client.append(buffer_.data(), size_t(count));
    }
    SetEvents(&c->grpc, 0);
    c->grpc.fd.reset();
    SetEvents(&c->client, c->client.events & ~EPOLLIN);
    c->client_ended = true;
    c->close_at_ns = now_ns_ + kLastBytesNs;
    SendToClient(c, {});
  }

  // --- connections go

  void Cut(Connection* c, CutReason reason) {
    const bool hoarding = c->guard.num_unfinished() >= kHoarding;
    switch (reason) {
      case CutReason::kNotHttp2:
      case CutReason::kEvicted:
        break;
      case CutReason::kRequestTimeout:
      case CutReason::kUnfinishedRequests:
        if (!hoarding) break;
        [[fallthrough]];
      default:
        c->peer->shunned_until_ns = now_ns_ + options_.shun_time.count() * kNsPerMs;
    }
    Count(reason, c->address);
    if (c->grpc.fd.valid() && c->to_client.empty()) {
      // gRPC writes whole frames: most likely this is between two of them, and the client will read why.
      const std::string frame = GoAway(c->guard.last_stream(), NameOf(reason));
      absl::string_view bytes = frame;
      Send(c->client.fd.get(), &bytes);
    }
    Close(c);
  }

  // The connection stays in memory until the events of this round are through.
  void Close(Connection* c) {
    if (c->closed) return;
    c->closed = true;
    any_closed_ = true;
    num_unfinished_ -= c->guard.num_unfinished();
    --c->peer->num_connections;
    stats_.SetOpen(--num_open_);
    c->client.fd.reset();  // epoll forgets what is closed
    c->grpc.fd.reset();
  }

  void Bury() {
    if (!any_closed_) return;
    any_closed_ = false;
    std::erase_if(connections_, [](const auto& connection) { return connection->closed; });
  }

  // Counts and logs, the same reason at most every ten seconds.
  void Count(CutReason reason, const SocketAddress& peer) {
    stats_.CountCut(reason);
    Lines& lines = lines_[size_t(reason)];
    if (lines.last_ns != 0 && now_ns_ - lines.last_ns < kLogDistanceNs) {
      ++lines.num_unsaid;
      return;
    }
    const std::string more =
        lines.num_unsaid == 0 ? "" : absl::StrCat("; ", lines.num_unsaid, " more since the last line");
    LogWarning(absl::StrCat(options_.name, ": closed a connection of ", peer.host(), ": ", NameOf(reason), more));
    lines = {.last_ns = now_ns_, .num_unsaid = 0};
  }

  // --- epoll

  void Watch(int fd, void* source) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = source}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }

  void WatchListener(bool listen) {
    if (listen == listening_) return;
    listening_ = listen;
    const int fd = acceptor_.listener().fd();
    if (listen) return Watch(fd, &acceptor_);
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }

  void SetEvents(End* end, uint32_t events) {
    if (end->watched && events == end->events) return;
    epoll_event event{.events = events, .data = {.ptr = end}};
    epoll_ctl(epoll_.get(), end->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, end->fd.get(), &event);
    end->watched = true;
    end->events = events;
  }

  struct Lines {
    int64_t last_ns = 0;
    int num_unsaid = 0;
  };

  const GrpcFrontOptions options_;
  const HandOver hand_over_;
  const OnAble on_able_;
  ConnectionStats stats_;
  std::atomic<int64_t> stop_at_ns_{kNever};

  Acceptor acceptor_;
  UniqueFd epoll_, wake_;
  bool listening_ = false;
  bool refusing_ = false;  // the acceptor holds sockets of clients that it refused
  bool pausing_ = false;  // the listener is not watched before resume_at_ns_
  int64_t resume_at_ns_ = 0;
  bool able_ = true;
  int64_t now_ns_ = 0, last_tick_ns_ = 0;
  std::map<PeerKey, Peer> peers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  bool any_closed_ = false;
  int num_open_ = 0;
  size_t num_unfinished_ = 0;
  uint64_t num_connected_ = 0;
  std::array<Lines, kCutReasonNames.size()> lines_;
  std::array<char, kBufferBytes> buffer_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<GrpcFront>> GrpcFront::Start(Listener listener, const GrpcFrontOptions& options,
                                                            HandOver hand_over, OnAble on_able) {
  auto impl = std::make_unique<Impl>(std::move(listener), options, std::move(hand_over), std::move(on_able));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<GrpcFront>(new GrpcFront(std::move(impl)));
}

GrpcFront::GrpcFront(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcFront::~GrpcFront() = default;
const SocketAddress& GrpcFront::address() const { return impl_->address(); }
ListenerSnapshot GrpcFront::Stats() const { return impl_->Stats(); }
void GrpcFront::StopIn(std::chrono::milliseconds grace) { impl_->StopIn(grace); }
void GrpcFront::Stop() { impl_->Stop(); }

}  // namespace sluice
