#include "server/model_state.h"

namespace sluice {

v1::ModelState ModelStateOf(HealthState::Phase phase) {
  switch (phase) {
    case HealthState::Phase::kLoading:
      return v1::MODEL_STATE_LOADING;
    case HealthState::Phase::kReady:
    case HealthState::Phase::kLeaving:
      return v1::MODEL_STATE_READY;
    case HealthState::Phase::kDraining:
    case HealthState::Phase::kStopped:
      return v1::MODEL_STATE_DRAINING;
    case HealthState::Phase::kFailed:
      return v1::MODEL_STATE_FAILED;
  }
  return v1::MODEL_STATE_UNSPECIFIED;
}

}  // namespace sluice
