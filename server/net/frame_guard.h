// Reads the frames that an HTTP/2 client sends before gRPC does, and says when they ask too much: what gRPC 1.51 itself
// does not limit (streams opened and reset at once, CVE-2023-44487; headers in endless small pieces, CVE-2023-33953;
// requests begun and never ended) never reaches it. Payloads are not looked into, but for the length of a request's
// first message; headers stay compressed.
//
// Blocks of headers are held back until they are whole: gRPC parses a block again for each piece that it gets.
//
// Pure: bytes in, verdict out, no sockets and no clock. One per connection, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/string_view.h"
#include "server/net/connection_stats.h"
#include "server/net/token_bucket.h"

namespace sluice {

// Honest clients stay far below all of these.
struct GuardLimits {
  // RST_STREAM frames, and HEADERS of a stream that has been there before.
  Allowance resets{.per_second = 500, .burst = 4000};
  // Frames that carry no part of a request: PING, SETTINGS (ten each), WINDOW_UPDATE, PRIORITY, unknown ones, and DATA
  // of less than 256 bytes that does not end its stream; one more for each 64 bytes. What the server has sent gives one
  // more for each 32 bytes, so that a client may acknowledge all that it gets.
  Allowance control_frames{.per_second = 1000, .burst = 10000};
  // All connections of a peer together may do so many times as much as one.
  double peer_factor = 2;
  uint32_t max_header_bytes = 32 << 10;  // compressed; gRPC refuses calls with more than 8 KiB by itself
  int max_continuations = 4;             // per block of headers
  size_t max_unfinished_requests = 1024;  // that the client has begun and not ended
};

// What all connections of a peer share.
struct PeerBudget {
  PeerBudget(const GuardLimits& limits, int64_t now_ns);
  TokenBucket resets, control_frames;
};

class FrameGuard {
 public:
  // `limits` and `peer` outlive the guard; `peer` may be null: then only the connection itself is limited.
  FrameGuard(const GuardLimits* limits, PeerBudget* peer, int64_t now_ns);

  // The next bytes of the client. A reason: the connection is to be closed, and the guard must not be used any more.
  std::optional<CutReason> Read(absl::string_view bytes, int64_t now_ns);

  // `count` more bytes have been sent to the client.
  void OnServerBytes(size_t count);

  // So many bytes at the end of what has been read must not be passed on before more has been read. At most
  // max_header_bytes and the heads of frames.
  size_t held_bytes() const { return held_; }
  // The client has said that it speaks HTTP/2.
  bool greeted() const { return state_ != State::kPreface; }
  bool has_requested() const { return last_stream_ != 0; }
  uint32_t last_stream() const { return last_stream_; }
  uint64_t num_requests() const { return num_requests_; }  // begun so far

  // Requests that the client has begun and not ended.
  size_t num_unfinished() const { return incomplete_.size() + open_.size(); }
  // When the oldest of them began; the largest value if there is none.
  int64_t oldest_unfinished_ns() const;
  // The same of those without a whole message: there is nothing to be answered yet.
  int64_t oldest_incomplete_ns() const;

 private:
  enum class State { kPreface, kFrameHead, kPayload };
  // How far the first message of a request has come: a flag, four bytes of length, and so many bytes.
  struct Incomplete {
    int64_t begun_ns = 0;
    uint32_t num_head_bytes = 0;
    uint64_t remaining = 0;
  };

  std::optional<CutReason> ReadPreface(absl::string_view* bytes);
  std::optional<CutReason> ReadFrameHead(absl::string_view* bytes, int64_t now_ns);
  std::optional<CutReason> ReadPayload(absl::string_view* bytes);
  std::optional<CutReason> BeginFrame(int64_t now_ns);
  std::optional<CutReason> BeginHeaders(int64_t now_ns);
  std::optional<CutReason> BeginContinuation();
  std::optional<CutReason> BeginData(int64_t now_ns);
  void ReadMessage(absl::string_view bytes);
  void EndFrame();
  bool ChargeReset(int64_t now_ns);
  bool ChargeControl(double cost, int64_t now_ns);

  const GuardLimits& limits_;
  PeerBudget* const peer_;
  TokenBucket resets_, control_frames_;
  double unearned_bytes_ = 0;  // answers to pings and settings: they earn the client nothing

  State state_ = State::kPreface;
  size_t held_ = 0;
  std::array<uint8_t, 9> head_{};
  size_t num_head_bytes_ = 0;  // of the frame's head, or of the preface

  // The frame whose payload is being read.
  uint8_t type_ = 0, flags_ = 0;
  uint32_t stream_ = 0, payload_left_ = 0;
  bool pad_length_due_ = false;
  uint32_t padding_ = 0;  // at the end of the payload

  // A block of headers that is not whole: until END_HEADERS nothing else may come.
  bool in_headers_ = false;
  uint32_t headers_stream_ = 0;
  bool headers_end_stream_ = false;
  uint64_t header_bytes_ = 0;
  int num_continuations_ = 0;

  uint32_t last_stream_ = 0;
  uint64_t num_requests_ = 0;
  // By stream, which is by age. A request moves from the first to the second with its first message.
  std::map<uint32_t, Incomplete> incomplete_;
  std::map<uint32_t, int64_t> open_;
};

}  // namespace sluice
