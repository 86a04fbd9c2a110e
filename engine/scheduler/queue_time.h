// How long a newcomer will have to wait, from the pace at which the queue has been moving.
//
// The pace is measured only while sequences wait: how many of them were admitted, over that time. (When nobody waits,
// admissions follow arrivals and say nothing about what the engine could do.) Older admissions fade: as many as may run
// at a time weigh half. Whoever has waited for a preempted sequence to come back has waited, so coming back counts for
// nothing, and the time for all.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

// Not thread-safe: owned by the engine thread. Times are ns on the engine's Clock.
class QueuePace {
 public:
  explicit QueuePace(int32_t max_num_seqs);  // REQUIRES: max_num_seqs >= 1

  // After each admission round: so many sequences have left the queue to run for the first time since the call before,
  // and `waiting` says whether others are left.
  void Observe(int64_t now_ns, int32_t num_admitted, bool waiting);

  // Admissions per second; 0: not known yet, too few have been seen.
  double per_second() const;

 private:
  const int32_t half_life_;  // admissions
  int64_t last_ns_ = 0;
  bool was_waiting_ = false;
  double num_admitted_ = 0;  // these two fade together
  double seconds_ = 0;
  double seconds_since_admission_ = 0;  // while others waited: they belong to the next admission
  int64_t num_seen_ = 0;
};

// Until `count` sequences have been admitted at a pace of `per_second`. REQUIRES: per_second > 0
absl::Duration TimeToAdmit(int64_t count, double per_second);

}  // namespace sluice
