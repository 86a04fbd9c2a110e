// An allowance that grows with time: so many per second, and a burst of so many at most.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

struct Allowance {
  double per_second = 0;
  double burst = 0;
};

class TokenBucket {
 public:
  TokenBucket(const Allowance& allowance, int64_t now_ns)
      : allowance_(allowance), level_(allowance.burst), last_ns_(now_ns) {}

  // Takes `cost`. False: there was less than that, and the bucket is empty now.
  bool Take(double cost, int64_t now_ns) {
    Fill(now_ns);
    level_ -= cost;
    if (level_ >= 0) return true;
    level_ = 0;
    return false;
  }
  // Takes `cost`, on credit if need be; when the bucket will be paid for, `now_ns` or later.
  int64_t Borrow(double cost, int64_t now_ns) {
    Fill(now_ns);
    level_ -= cost;
    return level_ >= 0 ? now_ns : now_ns + int64_t(-level_ / allowance_.per_second * 1e9);
  }
  void Give(double credit) { level_ = std::min(allowance_.burst, level_ + credit); }
  // From 0 to 1.
  double fullness() const { return level_ / allowance_.burst; }
  bool FullAt(int64_t now_ns) {
    Fill(now_ns);
    return level_ >= allowance_.burst;
  }

 private:
  void Fill(int64_t now_ns) {
    if (now_ns > last_ns_) Give(1e-9 * double(now_ns - last_ns_) * allowance_.per_second);
    last_ns_ = std::max(last_ns_, now_ns);
  }

  Allowance allowance_;
  double level_;
  int64_t last_ns_;
};

}  // namespace sluice
