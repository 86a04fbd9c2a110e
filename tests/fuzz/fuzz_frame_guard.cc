// The guard in front of gRPC. The first bytes say into which pieces the rest is cut; the same bytes in one piece must
// get the same verdict, and as much of them must be held back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/net/frame_guard.h"

namespace {

using sluice::FrameGuard;
using sluice::GuardLimits;

// Small, so that they are reached.
GuardLimits SmallLimits() {
  GuardLimits limits;
  limits.resets = {.per_second = 1, .burst = 5};
  limits.control_frames = {.per_second = 1, .burst = 30};
  limits.max_header_bytes = 200;
  limits.max_continuations = 3;
  limits.max_unfinished_requests = 4;
  return limits;
}

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const GuardLimits limits = SmallLimits();
  FrameGuard whole(&limits, nullptr, 0), pieces(&limits, nullptr, 0);
  const std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(data + 4, data + size);
  const auto verdict = whole.Read(bytes, 0);
  std::optional<sluice::CutReason> cut;
  size_t at = 0;
  for (size_t i = 0; at < bytes.size() && !cut.has_value(); ++i) {
    const size_t count = std::min<size_t>(bytes.size() - at, 1 + data[i % 4]);
    cut = pieces.Read(absl::string_view(bytes).substr(at, count), 0);
    at += count;
    Require(pieces.held_bytes() <= at);
    Require(pieces.held_bytes() <= limits.max_header_bytes + 9 * (limits.max_continuations + 2));
    Require(pieces.num_unfinished() <= limits.max_unfinished_requests + 1);
  }
  Require(cut == verdict);
  if (verdict.has_value()) return 0;
  Require(pieces.held_bytes() == whole.held_bytes());
  Require(pieces.num_unfinished() == whole.num_unfinished());
  Require(pieces.oldest_incomplete_ns() == whole.oldest_incomplete_ns());
  return 0;
}
