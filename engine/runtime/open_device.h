// Where the model runs, and in what precision: what DeviceOptions come to on this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/numerics.h"
#include "engine/ops/ops.h"
#include "engine/runtime/device_options.h"

namespace sluice {

struct ServingDevice {
  std::unique_ptr<Ops> ops;
  std::string name;         // "cpu" or "cuda"
  int32_t ordinal = 0;      // of a GPU
  std::string activations;  // as the flags spell them, never "auto"
  std::string kv_type;
  KvDType kv_dtype = KvDType::kF16;
  NumericsOptions numerics;  // but for what is the model's
};

// INVALID_ARGUMENT names a flag that asks for what no device of this build can do. Quick: looks at no device.
absl::Status CheckDevice(const DeviceOptions& options);

// `auto` is a GPU if this build has the CUDA engine and there is one, else the CPU, and a log line says why.
// `weight_type` is how the model's files store most weights: `--kv-dtype auto` goes by it. Errors: --device cuda
// without a usable GPU; flags that the chosen device cannot follow.
absl::StatusOr<ServingDevice> OpenDevice(const DeviceOptions& options, const std::string& weight_type,
                                         int32_t num_threads);

}  // namespace sluice
