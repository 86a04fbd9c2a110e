#include "server/calls/front_desk.h"

#include <chrono>

#include "server/calls/status.h"

namespace sluice {

absl::StatusOr<ServedModel*> FrontDesk::ModelForCall() const {
  switch (health.phase()) {
    case HealthState::Phase::kLoading:
      return CallError(absl::StatusCode::kUnavailable, kReasonLoading, "the model is being loaded; try again soon");
    case HealthState::Phase::kReady:
    case HealthState::Phase::kLeaving:
    case HealthState::Phase::kFailed:  // the engine itself says what is wrong
      return model.load();
    case HealthState::Phase::kDraining:
    case HealthState::Phase::kStopped:
      break;
  }
  return CallError(absl::StatusCode::kUnavailable, kReasonDraining, "the server is draining and takes no new requests");
}

int64_t FrontDesk::NowSinceEpochNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace sluice
