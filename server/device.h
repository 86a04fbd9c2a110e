// Where the model runs, and in what precision: what --device, --activations, --kv-dtype and --mla-expand-from
// come to on this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/ops.h"
#include "server/options.h"

namespace sluice {

struct ServingDevice {
  std::unique_ptr<Ops> ops;
  std::string name;         // "cpu" or "cuda"
  std::string activations;  // as the flags spell them, never "auto"
  std::string kv_type;
  KvDType kv_dtype = KvDType::kF16;
  int32_t mla_expand_from = INT32_MAX;
};

// INVALID_ARGUMENT names a flag that asks for what no device of this build can do. Quick: looks at no device.
absl::Status CheckDevice(const ModelOptions& options);

// `auto` is the first GPU if this build has the CUDA engine and there is one, else the CPU, and a log line says why.
// `weight_type` is how the model's files store most weights: `--kv-dtype auto` goes by it. Errors: --device cuda
// without a usable GPU; flags that the chosen device cannot follow.
absl::StatusOr<ServingDevice> OpenDevice(const ModelOptions& options, const std::string& weight_type,
                                         int32_t num_threads);

}  // namespace sluice
