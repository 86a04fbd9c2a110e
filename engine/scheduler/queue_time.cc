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

void QueuePace::Observe(int64_t now_ns, int32_t num_admitted, int32_t num_gave_up, int32_t num_waiting) {
  if (num_waiting_ > 0) {
    const double seconds = double(now_ns - last_ns_) * 1e-9;
    seconds_since_admission_ += seconds;
    waited_seconds_ += num_waiting_ * seconds;
    num_gave_up_ += num_gave_up;
    if (num_admitted > 0) {
      const double fading = std::exp2(-double(num_admitted) / half_life_);
      num_admitted_ = num_admitted_ * fading + num_admitted;
      seconds_ = seconds_ * fading + std::exchange(seconds_since_admission_, 0);
      num_gave_up_ *= fading;
      waited_seconds_ *= fading;
      num_seen_ += num_admitted;
    }
  }
  last_ns_ = now_ns;
  num_waiting_ = num_waiting;
}

QueueDrain QueuePace::drain() const {
  const double seconds = seconds_ + seconds_since_admission_;
  if (num_seen_ < FewestToKnow(half_life_) || seconds <= 0) return {};
  const double counted = std::max(0.0, num_gave_up_ - 1);
  return {.admissions_per_second = num_admitted_ / seconds,
          .giving_up_per_second = waited_seconds_ > 0 ? counted / waited_seconds_ : 0};
}

absl::Duration TimeToShrink(int64_t num_waiting, int64_t count, const QueueDrain& drain) {
  const double admissions = drain.admissions_per_second, giving_up = drain.giving_up_per_second;
  SLUICE_CHECK(admissions > 0 && count >= 0 && count <= num_waiting);
  // Of n' = -admissions - giving_up * n: the logarithm of what it loses per second at the beginning over at the end.
  const double growth = giving_up * double(count) / (admissions + giving_up * double(num_waiting - count));
  // Where hardly anybody gives up, that is 0 / 0.
  if (growth < 1e-9) return absl::Seconds(double(count) / admissions);
  return absl::Seconds(std::log1p(growth) / giving_up);
}

}  // namespace sluice
