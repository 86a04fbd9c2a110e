// What became of the connections of a listener, for metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

// Why a connection was refused, or closed before its client or we were done with it.
enum class CutReason {
  kMaxConnections,         // refused: as many as there may be in all
  kMaxConnectionsPerPeer,  // refused: as many as one address may have
  kShunned,                // refused: the address has just broken a limit
  kDescriptors,            // refused: the process has no file descriptor left
  kAcceptError,            // lost: the system could not hand it over
  kEvicted,                // has waited longest with an incomplete request when room was needed
  kRequestTimeout,         // a request did not arrive in full in time
  kNotHttp2,               // does not begin as HTTP/2 begins
  kMalformedFrame,         // HTTP/2 frames in an order that it forbids
  kHeaderSize,             // a block of headers is too large
  kContinuations,          // a block of headers comes in too many pieces
  kResets,                 // too many streams reset
  kControlFrames,          // too many frames that carry nothing
  kUnfinishedRequests,     // too many requests begun at a time
};
inline constexpr std::array<const char*, 14> kCutReasonNames = {
    "max_connections", "max_connections_per_peer", "shunned",          "descriptors",    "accept_error",
    "evicted",         "request_timeout",          "not_http2",        "malformed_frame", "header_size",
    "continuations",   "resets",                   "control_frames",   "unfinished_requests"};
inline const char* NameOf(CutReason reason) { return kCutReasonNames[size_t(reason)]; }

// Written by the listener's thread, read by any.
class ConnectionStats {
 public:
  void CountAccepted() { ++accepted_; }
  void CountCut(CutReason reason) { ++cut_[size_t(reason)]; }
  void SetOpen(int64_t open) { open_ = open; }

  uint64_t accepted() const { return accepted_; }
  uint64_t cut(CutReason reason) const { return cut_[size_t(reason)]; }
  int64_t open() const { return open_; }

 private:
  std::atomic<uint64_t> accepted_{0};
  std::array<std::atomic<uint64_t>, kCutReasonNames.size()> cut_{};
  std::atomic<int64_t> open_{0};
};

// The same at one moment, with the listener's name: "grpc", "http" or "admin".
struct ListenerSnapshot {
  std::string name;
  int64_t open = 0;
  uint64_t accepted = 0;
  std::array<uint64_t, kCutReasonNames.size()> cut{};

  static ListenerSnapshot Of(std::string name, const ConnectionStats& stats) {
    ListenerSnapshot snapshot{.name = std::move(name), .open = stats.open(), .accepted = stats.accepted(), .cut = {}};
    for (size_t i = 0; i < snapshot.cut.size(); ++i) snapshot.cut[i] = stats.cut(CutReason(i));
    return snapshot;
  }
};

}  // namespace sluice
