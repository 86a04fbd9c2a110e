#include "server/net/acceptor.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

namespace sluice {
namespace {

// Errors with less distance are one burst: one line in the log.
constexpr int64_t kBurstNs = 10'000'000'000;
// Of the process's descriptors, one in so many may belong to refused clients, and never more than kMaxRefused.
constexpr int kRefusedShare = 4, kMaxRefused = 4096;

// The connection itself is lost, the next one may be fine (accept(2): errors of the network are passed on this way).
bool IsOfOneConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

UniqueFd OpenReserve() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

int RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return DescriptorLimit();
}

int DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return int(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

Acceptor::Acceptor(Listener listener, std::string name, int descriptors_per_connection, ConnectionStats* stats)
    : listener_(std::move(listener)),
      name_(std::move(name)),
      descriptors_per_connection_(descriptors_per_connection),
      stats_(stats),
      reserve_(OpenReserve()),
      refused_(size_t(std::min(kMaxRefused, DescriptorLimit() / kRefusedShare))) {}

std::optional<AcceptedConnection> Acceptor::Next() {
  must_wait_ = false;
  while (true) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    UniqueFd fd(accept4(listener_.fd(), reinterpret_cast<sockaddr*>(&peer), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      stats_->CountAccepted();
      if (reserve_.valid()) able_ = true;
      return AcceptedConnection{std::move(fd), SocketAddress(reinterpret_cast<sockaddr*>(&peer), length)};
    }
    const int error = errno;
    if (error == EAGAIN || error == EWOULDBLOCK) return std::nullopt;
    OnError(error);
    if (IsOfOneConnection(error)) continue;
    if (!refused_.empty()) {
      refused_.CloseAll();
      continue;
    }
    able_ = false;
    if ((error == EMFILE || error == ENFILE) && reserve_.valid()) {
      // The system says so before it looks whether there is a connection at all.
      if (!RefuseWithReserve()) return std::nullopt;
      if (reserve_.valid()) continue;
    }
    must_wait_ = true;
    return std::nullopt;
  }
}

bool Acceptor::RefuseWithReserve() {
  reserve_.reset();
  const bool refused = UniqueFd(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC)).valid();
  reserve_ = OpenReserve();
  if (refused) stats_->CountCut(CutReason::kDescriptors);
  return refused;
}

void Acceptor::Refuse(UniqueFd fd) { refused_.Hold(std::move(fd), Clock::Real().NowNs()); }

bool Acceptor::CloseRefused() {
  refused_.CloseExpired(Clock::Real().NowNs());
  return !refused_.empty();
}

bool Acceptor::able() {
  if (able_) return true;
  refused_.CloseAll();
  if (!reserve_.valid()) reserve_ = OpenReserve();
  able_ = reserve_.valid();
  std::vector<UniqueFd> trial;
  for (int i = 0; able_ && i < descriptors_per_connection_; ++i) {
    trial.push_back(OpenReserve());
    able_ = trial.back().valid();
  }
  return able_;
}

void Acceptor::OnNoDescriptors() {
  refused_.CloseAll();
  able_ = false;
  stats_->CountCut(CutReason::kDescriptors);
  OnError(EMFILE);
}

void Acceptor::OnError(int error) {
  if (error != EMFILE && error != ENFILE) stats_->CountCut(CutReason::kAcceptError);
  const int64_t now_ns = Clock::Real().NowNs();
  if (last_error_ns_ == 0 || now_ns - last_error_ns_ > kBurstNs) {
    LogWarning(absl::StrCat(name_, ": cannot accept a connection: ", std::strerror(error)));
  }
  last_error_ns_ = now_ns;
}

}  // namespace sluice
