#include "engine/runtime/open_device.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/log.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/backend.h"

namespace sluice {
namespace {

absl::Status Refuse(const char* flag, const std::string& found, const std::vector<std::string>& known,
                    const char* device) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": found ", Quote(found), ", expected auto, ",
                                                 absl::StrJoin(known.begin(), known.end() - 1, ", "), " or ",
                                                 known.back(), " on the ", device, " device"));
}

bool Knows(const std::vector<std::string>& known, const std::string& name) {
  return name == "auto" || std::find(known.begin(), known.end(), name) != known.end();
}

absl::Status Check(const Backend& backend, const DeviceOptions& options) {
  if (!Knows(backend.activations, options.activations)) {
    return Refuse("--activations", options.activations, backend.activations, backend.name);
  }
  if (!Knows(backend.kv_types, options.kv_dtype)) {
    return Refuse("--kv-dtype", options.kv_dtype, backend.kv_types, backend.name);
  }
  if (options.gemm_library_from != INT32_MAX &&
      (backend.gemm_library_with == nullptr ||
       (options.activations != "auto" && options.activations != backend.gemm_library_with))) {
    return absl::InvalidArgumentError(absl::StrCat("--gemm-library-from: found ",
                                                   Quote(absl::StrCat(options.gemm_library_from)),
                                                   ", expected never but on a GPU with --activations bf16"));
  }
  return absl::OkStatus();
}

KvDType KvTypeOf(const std::string& name) {
  if (name == "f32") return KvDType::kF32;
  if (name == "bf16") return KvDType::kBF16;
  if (name == "fp8_e4m3") return KvDType::kF8E4M3;
  return KvDType::kF16;
}

// What `--kv-dtype auto` means. Where the weights and the activations are bf16 keys and values are, too, and nothing is
// lost by keeping them so. What is computed more precisely (everything on the CPU) is kept in f16, by which the
// log-probabilities of bf16 models are eight times as close.
std::string AutoKvType(const Backend& backend, const std::string& activations, const std::string& weight_type) {
  return weight_type == "BF16" && activations == "bf16" ? "bf16" : backend.kv_types[0];
}

absl::StatusOr<ServingDevice> Open(const Backend& backend, const DeviceOptions& options, const std::string& weight_type,
                                   int32_t num_threads) {
  SLUICE_RETURN_IF_ERROR(Check(backend, options));
  ServingDevice device;
  device.name = backend.name;
  device.ordinal = options.ordinal;
  device.activations = options.activations == "auto" ? backend.activations[0] : options.activations;
  device.kv_type = options.kv_dtype;
  if (device.kv_type == "auto") device.kv_type = AutoKvType(backend, device.activations, weight_type);
  device.kv_dtype = KvTypeOf(device.kv_type);
  device.numerics.mla_expand_from = options.mla_expand_from.value_or(backend.mla_expand_from);
  device.numerics.gemm_library_from = options.gemm_library_from;
  SLUICE_ASSIGN_OR_RETURN(device.ops, backend.open(options, device.activations, num_threads));
  return device;
}

}  // namespace

absl::Status CheckDevice(const DeviceOptions& options) {
  const Backend* gpu = CudaBackend();
  if (options.name == "cuda" && gpu == nullptr) {
    return absl::InvalidArgumentError("--device: found 'cuda', expected auto or cpu: this build has no CUDA engine");
  }
  if (options.name == "cuda") return Check(*gpu, options);
  // What one of the two can do may turn out to be what there is.
  if (options.name == "auto" && gpu != nullptr && Check(*gpu, options).ok()) return absl::OkStatus();
  return Check(CpuBackend(), options);
}

absl::StatusOr<ServingDevice> OpenDevice(const DeviceOptions& options, const std::string& weight_type,
                                         int32_t num_threads) {
  const Backend* gpu = options.name != "cpu" ? CudaBackend() : nullptr;
  if (gpu != nullptr) {
    const absl::Status found = gpu->find(options.ordinal);
    if (found.ok()) return Open(*gpu, options, weight_type, num_threads);
    if (options.name == "cuda") return absl::Status(found.code(), absl::StrCat("--device cuda: ", found.message()));
    LogInfo(absl::StrCat("device: the CPU, for there is ", found.message()));
  }
  return Open(CpuBackend(), options, weight_type, num_threads);
}

}  // namespace sluice
