#include "server/device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/cpu_ops.h"
#if SLUICE_WITH_CUDA
#include "engine/ops/cuda/cublaslt.h"
#include "engine/ops/cuda/cuda_device.h"
#include "engine/ops/cuda/cuda_ops.h"
#endif

namespace sluice {
namespace {

// What a device can do, by the flags' names; the first is what `auto` means.
struct Abilities {
  const char* device;
  std::vector<std::string> activations, kv_types;
  const char* gemm_library_with;  // the activations with which --gemm-library-from means something; null: none
  int32_t mla_expand_from;
};

const Abilities& OfCpu() {
  static const auto* cpu = new Abilities{"cpu", {"int16", "int8", "f32"}, {"f16", "f32", "bf16"}, nullptr, INT32_MAX};
  return *cpu;
}

#if SLUICE_WITH_CUDA
const Abilities& OfCuda() {
  static const auto* cuda = new Abilities{"cuda", {"bf16", "f32"}, {"f16", "bf16", "f32", "fp8_e4m3"}, "bf16", 512};
  return *cuda;
}
#endif

absl::Status Refuse(const char* flag, const std::string& found, const std::vector<std::string>& known,
                    const char* device) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": found '", found, "', expected auto, ",
                                                 absl::StrJoin(known.begin(), known.end() - 1, ", "), " or ",
                                                 known.back(), " on the ", device, " device"));
}

bool Knows(const std::vector<std::string>& known, const std::string& name) {
  return name == "auto" || std::find(known.begin(), known.end(), name) != known.end();
}

absl::Status Check(const Abilities& able, const ModelOptions& options) {
  if (!Knows(able.activations, options.activations)) {
    return Refuse("--activations", options.activations, able.activations, able.device);
  }
  if (!Knows(able.kv_types, options.kv_dtype)) {
    return Refuse("--kv-dtype", options.kv_dtype, able.kv_types, able.device);
  }
  if (options.gemm_library_from != INT32_MAX &&
      (able.gemm_library_with == nullptr ||
       (options.activations != "auto" && options.activations != able.gemm_library_with))) {
    return absl::InvalidArgumentError(absl::StrCat("--gemm-library-from: found '", options.gemm_library_from,
                                                   "', expected never but on a GPU with --activations bf16"));
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
std::string AutoKvType(const Abilities& able, const std::string& activations, const std::string& weight_type) {
  return weight_type == "BF16" && activations == "bf16" ? "bf16" : able.kv_types[0];
}

ServingDevice Describe(const Abilities& able, const ModelOptions& options, const std::string& weight_type) {
  ServingDevice device;
  device.name = able.device;
  device.activations = options.activations == "auto" ? able.activations[0] : options.activations;
  device.kv_type = options.kv_dtype;
  if (device.kv_type == "auto") device.kv_type = AutoKvType(able, device.activations, weight_type);
  device.kv_dtype = KvTypeOf(device.kv_type);
  device.mla_expand_from = options.mla_expand_from.value_or(able.mla_expand_from);
  return device;
}

absl::StatusOr<ServingDevice> OpenCpu(const ModelOptions& options, const std::string& weight_type,
                                      int32_t num_threads) {
  SLUICE_RETURN_IF_ERROR(Check(OfCpu(), options));
  ServingDevice device = Describe(OfCpu(), options, weight_type);
  CpuOpsOptions cpu;
  cpu.num_threads = num_threads;
  cpu.activations = device.activations == "int8"  ? ActivationType::kInt8
                    : device.activations == "f32" ? ActivationType::kF32
                                                  : ActivationType::kInt16;
  SLUICE_ASSIGN_OR_RETURN(device.ops, NewCpuOps(cpu));
  return device;
}

#if SLUICE_WITH_CUDA
absl::StatusOr<std::unique_ptr<GemmLibrary>> OpenLibrary() {
  SLUICE_ASSIGN_OR_RETURN(const CublasLtApi api, LoadCublasLt());
  return NewCublasLt(api);
}

absl::StatusOr<ServingDevice> OpenCuda(const ModelOptions& options, const std::string& weight_type, int32_t num_threads,
                                       std::unique_ptr<Device> gpu) {
  SLUICE_RETURN_IF_ERROR(Check(OfCuda(), options));
  ServingDevice device = Describe(OfCuda(), options, weight_type);
  CudaOpsOptions cuda;
  cuda.activations = device.activations == "f32" ? cuda::Element::kF32 : cuda::Element::kBF16;
  cuda.num_threads = num_threads;
  std::unique_ptr<GemmLibrary> library;
  if (options.gemm_library_from != INT32_MAX) {
    absl::StatusOr<std::unique_ptr<GemmLibrary>> opened = OpenLibrary();
    if (!opened.ok()) {
      return absl::Status(opened.status().code(),
                          absl::StrCat("--gemm-library-from ", options.gemm_library_from, ": ",
                                       opened.status().message(), "; without the flag it is not needed"));
    }
    library = *std::move(opened);
  }
  SLUICE_ASSIGN_OR_RETURN(device.ops, NewCudaOps(std::move(gpu), cuda, std::move(library)));
  return device;
}
#endif

}  // namespace

absl::Status CheckDevice(const ModelOptions& options) {
#if SLUICE_WITH_CUDA
  if (options.device == "cuda") return Check(OfCuda(), options);
  // What one of the two can do may turn out to be what there is.
  if (options.device == "auto" && Check(OfCuda(), options).ok()) return absl::OkStatus();
#else
  if (options.device == "cuda") {
    return absl::InvalidArgumentError("--device: found 'cuda', expected auto or cpu: this build has no CUDA engine");
  }
#endif
  return Check(OfCpu(), options);
}

absl::StatusOr<ServingDevice> OpenDevice(const ModelOptions& options, const std::string& weight_type,
                                         int32_t num_threads) {
#if SLUICE_WITH_CUDA
  if (options.device != "cpu") {
    absl::StatusOr<std::unique_ptr<Device>> gpu = NewCudaDevice();
    if (gpu.ok()) return OpenCuda(options, weight_type, num_threads, *std::move(gpu));
    if (options.device == "cuda") {
      return absl::Status(gpu.status().code(), absl::StrCat("--device cuda: ", gpu.status().message()));
    }
    LogInfo(absl::StrCat("device: the CPU, for there is ", gpu.status().message()));
  }
#endif
  return OpenCpu(options, weight_type, num_threads);
}

}  // namespace sluice
