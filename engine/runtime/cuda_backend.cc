#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cuda/cublaslt.h"
#include "engine/ops/cuda/cuda_device.h"
#include "engine/ops/cuda/cuda_ops.h"
#include "engine/runtime/backend.h"

namespace sluice {
namespace {

absl::StatusOr<std::unique_ptr<GemmLibrary>> OpenLibrary() {
  SLUICE_ASSIGN_OR_RETURN(const CublasLtApi api, LoadCublasLt());
  return NewCublasLt(api);
}

absl::StatusOr<std::unique_ptr<Ops>> Open(const DeviceOptions& options, const std::string& activations,
                                          int32_t num_threads) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Device> gpu, NewCudaDevice(options.ordinal));
  CudaOpsOptions cuda;
  cuda.activations = activations == "f32" ? cuda::Element::kF32 : cuda::Element::kBF16;
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
  return NewCudaOps(std::move(gpu), cuda, std::move(library));
}

}  // namespace

const Backend* CudaBackend() {
  static const auto* const cuda = new Backend{.name = "cuda",
                                              .activations = {"bf16", "f32"},
                                              .kv_types = {"f16", "bf16", "f32", "fp8_e4m3"},
                                              .gemm_library_with = "bf16",
                                              .mla_expand_from = 512,
                                              .find = [](int32_t ordinal) { return NewCudaDevice(ordinal).status(); },
                                              .open = Open};
  return cuda;
}

}  // namespace sluice
