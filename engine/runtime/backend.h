// The kinds of devices, each in a file of its own; a build without the CUDA engine links no_cuda_backend.cc instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/ops.h"
#include "engine/runtime/device_options.h"

namespace sluice {

// What a device can do, by the flags' names; the first is what `auto` means.
struct Backend {
  const char* name;
  std::vector<std::string> activations, kv_types;
  const char* gemm_library_with;  // the activations with which --gemm-library-from means something; null: none
  int32_t mla_expand_from;
  // Whether there is a device that can be used; if not, the message goes on after "there is".
  absl::Status (*find)(int32_t ordinal);
  // REQUIRES: `find` is OK, `activations` is one of the above.
  absl::StatusOr<std::unique_ptr<Ops>> (*open)(const DeviceOptions& options, const std::string& activations,
                                               int32_t num_threads);
};

const Backend& CpuBackend();
const Backend* CudaBackend();  // null: not in this build

}  // namespace sluice
