// A call's deadline, from gRPC's clocks to ours.
#pragma once

#include <grpc/support/time.h>

#include <cstdint>
#include <optional>

namespace sluice {

// gRPC's `deadline` (ServerContextBase::raw_deadline) on the clock that says `now_ns`. nullopt: there is none, or none
// within a year.
std::optional<int64_t> DeadlineNs(gpr_timespec deadline, int64_t now_ns);

}  // namespace sluice
