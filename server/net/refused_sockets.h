// Sockets of clients that were refused, closed only after a while. Who opens a new connection whenever one is closed would
// otherwise make us accept and close as fast as it can: 15,000 connections a second and half of a core, measured with two
// attackers on loopback. A socket that is held unread costs a descriptor and its kernel memory, which is bounded here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "server/net/unique_fd.h"

namespace sluice {

// One thread. Times are of one monotonic clock, in nanoseconds, and never go back.
class RefusedSockets {
 public:
  static constexpr std::chrono::seconds kHoldTime{2};

  explicit RefusedSockets(size_t capacity) : capacity_(capacity) {}

  // Closes `fd` after kHoldTime; earlier if the place is needed.
  void Hold(UniqueFd fd, int64_t now_ns) {
    if (capacity_ == 0) return;
    if (held_.size() >= capacity_) held_.pop_front();
    held_.emplace_back(now_ns + std::chrono::nanoseconds(kHoldTime).count(), std::move(fd));
  }

  void CloseExpired(int64_t now_ns) {
    while (!held_.empty() && held_.front().first <= now_ns) held_.pop_front();
  }

  // Their descriptors are needed.
  void CloseAll() { held_.clear(); }

  bool empty() const { return held_.empty(); }
  size_t size() const { return held_.size(); }

 private:
  const size_t capacity_;
  std::deque<std::pair<int64_t, UniqueFd>> held_;  // when to close it; oldest first
};

}  // namespace sluice
