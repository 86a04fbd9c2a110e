#include "server/net/frame_guard.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr absl::string_view kPrefaceText = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, section 6.
enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 0x1, kAck = 0x1, kEndHeaders = 0x4, kPadded = 0x8;

constexpr uint32_t kMessageHeadBytes = 5;
constexpr uint32_t kSmallData = 256;
constexpr double kSettingsCost = 10;
constexpr double kBytesPerControlCost = 64, kServerBytesPerCredit = 32;
constexpr double kPingAnswerBytes = 17, kSettingsAnswerBytes = 9;
// A peer's excess is laid on those of its connections that have used this much of their own allowance.
constexpr double kBlameBelow = 0.9;

Allowance Times(const Allowance& allowance, double factor) {
  return {.per_second = factor * allowance.per_second, .burst = factor * allowance.burst};
}

bool Charge(TokenBucket* own, TokenBucket* peers, double cost, int64_t now_ns) {
  const bool within_own = own->Take(cost, now_ns);
  const bool within_peers = peers == nullptr || peers->Take(cost, now_ns) || own->fullness() > kBlameBelow;
  return within_own && within_peers;
}

}  // namespace

PeerBudget::PeerBudget(const GuardLimits& limits, int64_t now_ns)
    : resets(Times(limits.resets, limits.peer_factor), now_ns),
      control_frames(Times(limits.control_frames, limits.peer_factor), now_ns) {}

FrameGuard::FrameGuard(const GuardLimits* limits, PeerBudget* peer, int64_t now_ns)
    : limits_(*limits), peer_(peer), resets_(limits->resets, now_ns), control_frames_(limits->control_frames, now_ns) {}

std::optional<CutReason> FrameGuard::Read(absl::string_view bytes, int64_t now_ns) {
  while (!bytes.empty()) {
    std::optional<CutReason> cut;
    switch (state_) {
      case State::kPreface:
        cut = ReadPreface(&bytes);
        break;
      case State::kFrameHead:
        cut = ReadFrameHead(&bytes, now_ns);
        break;
      case State::kPayload:
        cut = ReadPayload(&bytes);
        break;
    }
    if (cut.has_value()) return cut;
  }
  return std::nullopt;
}

std::optional<CutReason> FrameGuard::ReadPreface(absl::string_view* bytes) {
  const size_t count = std::min(bytes->size(), kPrefaceText.size() - num_head_bytes_);
  if (bytes->substr(0, count) != kPrefaceText.substr(num_head_bytes_, count)) return CutReason::kNotHttp2;
  bytes->remove_prefix(count);
  num_head_bytes_ += count;
  held_ += count;
  if (num_head_bytes_ == kPrefaceText.size()) {
    state_ = State::kFrameHead;
    num_head_bytes_ = 0;
    held_ = 0;
  }
  return std::nullopt;
}

std::optional<CutReason> FrameGuard::ReadFrameHead(absl::string_view* bytes, int64_t now_ns) {
  const size_t count = std::min(bytes->size(), head_.size() - num_head_bytes_);
  std::copy_n(bytes->begin(), count, head_.begin() + num_head_bytes_);
  bytes->remove_prefix(count);
  num_head_bytes_ += count;
  held_ += count;  // it may be the head of headers
  if (num_head_bytes_ < head_.size()) return std::nullopt;
  num_head_bytes_ = 0;
  payload_left_ = uint32_t{head_[0]} << 16 | uint32_t{head_[1]} << 8 | head_[2];
  type_ = head_[3];
  flags_ = head_[4];
  stream_ = uint32_t{head_[5]} << 24 | uint32_t{head_[6]} << 16 | uint32_t{head_[7]} << 8 | head_[8];
  stream_ &= 0x7fffffff;  // the first bit has no meaning
  state_ = State::kPayload;
  if (const auto cut = BeginFrame(now_ns)) return cut;
  if (!in_headers_) held_ = 0;
  if (payload_left_ == 0) EndFrame();
  return std::nullopt;
}

std::optional<CutReason> FrameGuard::BeginFrame(int64_t now_ns) {
  if (in_headers_ && type_ != kContinuation) return CutReason::kMalformedFrame;
  double cost = 1 + payload_left_ / kBytesPerControlCost;
  switch (type_) {
    case kData:
      return BeginData(now_ns);
    case kHeaders:
      return BeginHeaders(now_ns);
    case kContinuation:
      return BeginContinuation();
    case kPushPromise:
      return CutReason::kMalformedFrame;  // only servers push
    case kRstStream:
      incomplete_.erase(stream_);
      open_.erase(stream_);
      if (!ChargeReset(now_ns)) return CutReason::kResets;
      return std::nullopt;
    case kSettings:
      if ((flags_ & kAck) != 0) break;
      cost += kSettingsCost - 1;
      unearned_bytes_ += kSettingsAnswerBytes;
      break;
    case kPing:
      if ((flags_ & kAck) == 0) unearned_bytes_ += kPingAnswerBytes;
      break;
    default:
      break;
  }
  if (!ChargeControl(cost, now_ns)) return CutReason::kControlFrames;
  return std::nullopt;
}

std::optional<CutReason> FrameGuard::BeginHeaders(int64_t now_ns) {
  if (stream_ % 2 == 0) return CutReason::kMalformedFrame;  // a client's streams are odd
  in_headers_ = true;
  headers_stream_ = stream_;
  headers_end_stream_ = (flags_ & kEndStream) != 0;
  header_bytes_ = payload_left_;
  num_continuations_ = 0;
  if (header_bytes_ > limits_.max_header_bytes) return CutReason::kHeaderSize;
  if (stream_ > last_stream_) {
    last_stream_ = stream_;
    ++num_requests_;
    incomplete_[stream_] = {.begun_ns = now_ns, .num_head_bytes = 0, .remaining = 0};
    if (num_unfinished() > limits_.max_unfinished_requests) return CutReason::kUnfinishedRequests;
  } else if (!ChargeReset(now_ns)) {  // trailers, or a stream that has ended
    return CutReason::kResets;
  }
  return std::nullopt;
}

std::optional<CutReason> FrameGuard::BeginContinuation() {
  if (!in_headers_ || stream_ != headers_stream_) return CutReason::kMalformedFrame;
  header_bytes_ += payload_left_;
  if (header_bytes_ > limits_.max_header_bytes) return CutReason::kHeaderSize;
  if (++num_continuations_ > limits_.max_continuations) return CutReason::kContinuations;
  return std::nullopt;
}

std::optional<CutReason> FrameGuard::BeginData(int64_t now_ns) {
  pad_length_due_ = (flags_ & kPadded) != 0;
  padding_ = 0;
  if (pad_length_due_ && payload_left_ == 0) return CutReason::kMalformedFrame;
  const bool ends_known = (flags_ & kEndStream) != 0 && (incomplete_.count(stream_) != 0 || open_.count(stream_) != 0);
  if (payload_left_ < kSmallData && !ends_known && !ChargeControl(1, now_ns)) return CutReason::kControlFrames;
  return std::nullopt;
}

std::optional<CutReason> FrameGuard::ReadPayload(absl::string_view* bytes) {
  absl::string_view now = bytes->substr(0, payload_left_);
  bytes->remove_prefix(now.size());
  if (in_headers_) held_ += now.size();
  if (type_ == kData && pad_length_due_) {
    pad_length_due_ = false;
    padding_ = uint8_t(now.front());
    now.remove_prefix(1);
    --payload_left_;
    if (padding_ > payload_left_) return CutReason::kMalformedFrame;
  }
  if (type_ == kData && payload_left_ > padding_) ReadMessage(now.substr(0, payload_left_ - padding_));
  payload_left_ -= uint32_t(now.size());
  if (payload_left_ == 0) EndFrame();
  return std::nullopt;
}

void FrameGuard::ReadMessage(absl::string_view bytes) {
  const auto request = incomplete_.find(stream_);
  if (request == incomplete_.end()) return;
  Incomplete& message = request->second;
  for (; !bytes.empty() && message.num_head_bytes < kMessageHeadBytes; ++message.num_head_bytes) {
    if (message.num_head_bytes > 0) message.remaining = message.remaining << 8 | uint8_t(bytes.front());
    bytes.remove_prefix(1);
  }
  message.remaining -= std::min<uint64_t>(message.remaining, bytes.size());
  if (message.num_head_bytes < kMessageHeadBytes || message.remaining > 0) return;
  open_[stream_] = message.begun_ns;
  incomplete_.erase(request);
}

void FrameGuard::EndFrame() {
  state_ = State::kFrameHead;
  bool ends_stream = type_ == kData && (flags_ & kEndStream) != 0;
  if (in_headers_) {
    if ((flags_ & kEndHeaders) == 0) return;
    in_headers_ = false;
    held_ = 0;
    ends_stream = headers_end_stream_;
  }
  if (!ends_stream) return;
  incomplete_.erase(stream_);
  open_.erase(stream_);
}

bool FrameGuard::ChargeReset(int64_t now_ns) {
  return Charge(&resets_, peer_ == nullptr ? nullptr : &peer_->resets, 1, now_ns);
}

bool FrameGuard::ChargeControl(double cost, int64_t now_ns) {
  return Charge(&control_frames_, peer_ == nullptr ? nullptr : &peer_->control_frames, cost, now_ns);
}

void FrameGuard::OnServerBytes(size_t count) {
  const double answers = std::min(unearned_bytes_, double(count));
  unearned_bytes_ -= answers;
  const double credit = (double(count) - answers) / kServerBytesPerCredit;
  control_frames_.Give(credit);
  if (peer_ != nullptr) peer_->control_frames.Give(credit);
}

int64_t FrameGuard::oldest_incomplete_ns() const {
  return incomplete_.empty() ? std::numeric_limits<int64_t>::max() : incomplete_.begin()->second.begun_ns;
}

int64_t FrameGuard::oldest_unfinished_ns() const {
  return open_.empty() ? oldest_incomplete_ns() : std::min(oldest_incomplete_ns(), open_.begin()->second);
}

}  // namespace sluice
