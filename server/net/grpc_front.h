// The front end before gRPC: accepts connections, counts them, reads what clients send (FrameGuard) and relays it.
//
//   client ── TCP ── [ GrpcFront: one thread, epoll ] ── UNIX socket pair ── gRPC
//
// What goes to gRPC is read frame by frame; what comes back is relayed unread. A connection reaches gRPC once it has
// said that it speaks HTTP/2: until then it costs a descriptor and a few hundred bytes. TLS, when there is some, ends
// before the guard: the thread hands decrypted bytes on, and PeerOf goes on telling who sent them.
//
// Flow is what it would be without: buffers are bounded both ways (64 KiB, and what UNIX sockets hold), so a client
// that does not read stops gRPC's writes, and one that gRPC does not read from is stopped. Either end's close reaches
// the other after all bytes before it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/net/connection_stats.h"
#include "server/net/frame_guard.h"
#include "server/net/listener.h"
#include "server/net/token_bucket.h"
#include "server/net/unique_fd.h"

namespace sluice {

// The client's socket and both ends of the pair.
inline constexpr int kDescriptorsPerGrpcConnection = 3;

struct GrpcFrontOptions {
  std::string name;  // in log lines and metrics
  int max_connections = 4096;
  int max_connections_per_peer = 256;    // see PeerKey
  std::vector<Network> trusted_proxies;  // many clients behind one address: not limited per peer
  // For the HTTP/2 preface, and for a request to arrive in full.
  std::chrono::milliseconds receive_timeout{30000};
  // In all connections; beyond it the one that has waited longest with a request unfinished is closed.
  size_t max_unfinished_requests = 2048;
  // A peer that broke a limit gets no new connection for so long.
  std::chrono::milliseconds shun_time{10000};
  GuardLimits guard;
  // Of one peer on all its connections. Beyond it the front reads no more of a connection until the peer's allowance has
  // caught up: whoever opens calls as fast as it can waits, and is refused nothing.
  Allowance requests_per_peer{.per_second = 2000, .burst = 4000};
};

// Thread-safe.
class GrpcFront {
 public:
  // Gets a connected socket of which gRPC is to be the server; on the front's thread.
  using HandOver = std::function<void(UniqueFd)>;
  // Told when the front can take no more connections (false), and when it can again (true); on the front's thread.
  using OnAble = std::function<void(bool)>;

  // Serves at once. The error is of the system: no descriptors for an epoll.
  static absl::StatusOr<std::unique_ptr<GrpcFront>> Start(Listener listener, const GrpcFrontOptions& options,
                                                          HandOver hand_over, OnAble on_able);
  ~GrpcFront();  // Stop()

  const SocketAddress& address() const;
  ListenerSnapshot Stats() const;

  // Closes all connections after `grace`, and takes no more.
  void StopIn(std::chrono::milliseconds grace);
  // Closes all connections now and ends the thread. Idempotent; one thread only.
  void Stop();

 private:
  class Impl;
  explicit GrpcFront(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
