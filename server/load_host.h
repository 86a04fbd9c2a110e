// From flags to a model that runs: opens the file, brings the weights onto the device, sizes the KV cache.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/calls/model_host.h"
#include "server/options.h"

namespace sluice {

// REQUIRES: CheckDevice(options.model.device) is OK (engine/runtime/open_device.h). Errors name the file and what is
// wrong with it, or the flag to change.
absl::StatusOr<ModelHost> LoadModelHost(const ServerOptions& options);

}  // namespace sluice
