// The phase of the server as clients see it.
#pragma once

#include "server/calls/health_state.h"
#include "sluice/v1/model.pb.h"

namespace sluice {

// What a model can be used for in this phase: while the server leaves it still answers calls, so it is READY.
v1::ModelState ModelStateOf(HealthState::Phase phase);

}  // namespace sluice
