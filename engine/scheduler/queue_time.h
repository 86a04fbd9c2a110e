// How long a newcomer will have to wait, from the pace at which the queue has been moving.
//
// A queue empties by admissions, and by those who give up: cancelled calls, deadlines that pass. Both are measured only
// while sequences wait.
// - Admissions: how many, over that time. (When nobody waits, admissions follow arrivals and say nothing about what the
//   engine could do.) Whoever has waited for a preempted sequence to come back has waited, so coming back counts for
//   nothing, and the time for all.
// - Giving up: how many, over the time that all have waited together. It is a property of those who wait, not of the
//   engine: of twice as many, twice as many give up. A client that leaves with a thousand calls changes it by little,
//   where a count per second would take them for the engine's pace. One is no measure: the first does not count.
// Older events fade: as many admissions as may run at a time weigh half.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

// A queue of n loses admissions_per_second + n * giving_up_per_second in a second.
struct QueueDrain {
  double admissions_per_second = 0;  // 0: not known yet, too few have been seen
  double giving_up_per_second = 0;   // of each that waits
};

// Not thread-safe: owned by the engine thread. Times are ns on the engine's Clock.
class QueuePace {
 public:
  explicit QueuePace(int32_t max_num_seqs);  // REQUIRES: max_num_seqs >= 1

  // After each admission round: so many sequences have left the queue since the call before, to run for the first time
  // or because they gave up, and so many are left.
  void Observe(int64_t now_ns, int32_t num_admitted, int32_t num_gave_up, int32_t num_waiting);

  QueueDrain drain() const;

 private:
  const int32_t half_life_;  // admissions
  int64_t last_ns_ = 0;
  int32_t num_waiting_ = 0;
  double num_admitted_ = 0;  // these four fade together
  double seconds_ = 0;
  double num_gave_up_ = 0;
  double waited_seconds_ = 0;  // of all that waited, together
  double seconds_since_admission_ = 0;  // while others waited: they belong to the next admission
  int64_t num_seen_ = 0;
};

// Until a queue of `num_waiting` has lost `count` of them. REQUIRES: 0 <= count <= num_waiting,
// drain.admissions_per_second > 0
absl::Duration TimeToShrink(int64_t num_waiting, int64_t count, const QueueDrain& drain);

}  // namespace sluice
