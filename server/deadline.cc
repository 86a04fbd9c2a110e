#include "server/deadline.h"

namespace sluice {

std::optional<int64_t> DeadlineNs(gpr_timespec deadline, int64_t now_ns) {
  constexpr int64_t kYearSeconds = 365 * 24 * 3600;
  // Infinity stays infinity; and seconds come first, since a client may ask for more years than nanoseconds can count.
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_REALTIME), gpr_now(GPR_CLOCK_REALTIME));
  if (left.tv_sec > kYearSeconds) return std::nullopt;
  if (left.tv_sec < -kYearSeconds) return now_ns;
  return now_ns + left.tv_sec * 1'000'000'000 + left.tv_nsec;
}

}  // namespace sluice
