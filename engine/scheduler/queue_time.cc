#include "engine/scheduler/queue_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"

namespace sluice {
namespace {

// Of the first few admissions the time between them says little: some of those that ran when the queue began may have
// been about to end.
int64_t FewestToKnow(int32_t max_num_seqs) { return std::clamp(max_num_seqs / 8, 1, 8); }

}  // namespace

QueuePace::QueuePace(int32_t max_num_seqs) : half_life_(max_num_seqs) { SLUICE_CHECK(max_num_seqs >= 1); }

void QueuePace::Observe(int64_t now_ns, int32_t num_admitted, bool waiting) {
  if (was_waiting_) {
    seconds_since_admission_ += double(now_ns - last_ns_) * 1e-9;
    if (num_admitted > 0) {
      const double fading = std::exp2(-double(num_admitted) / half_life_);
      num_admitted_ = num_admitted_ * fading + num_admitted;
      seconds_ = seconds_ * fading + std::exchange(seconds_since_admission_, 0);
      num_seen_ += num_admitted;
    }
  }
  last_ns_ = now_ns;
  was_waiting_ = waiting;
}

double QueuePace::per_second() const {
  const double seconds = seconds_ + seconds_since_admission_;
  if (num_seen_ < FewestToKnow(half_life_) || seconds <= 0) return 0;
  return num_admitted_ / seconds;
}

absl::Duration TimeToAdmit(int64_t count, double per_second) {
  SLUICE_CHECK(per_second > 0);
  return absl::Seconds(double(count) / per_second);
}

}  // namespace sluice
