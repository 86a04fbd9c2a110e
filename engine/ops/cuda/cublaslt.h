// NVIDIA's cuBLASLt as a GemmLibrary. Its half a gigabyte is loaded when it is asked for: a server starts and does all
// else without it.
#pragma once

#include <cublasLt.h>

#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/gemm_library.h"

namespace sluice {

// What is used of the library, as a value: tests put functions for the CPU in their place.
struct CublasLtApi {
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

inline constexpr char kCublasLtFile[] = "libcublasLt.so.13";

// Loads the library, for the life of the process. NOT_FOUND: says what was looked for, what the loader answered and
// where the library comes from.
absl::StatusOr<CublasLtApi> LoadCublasLt(const char* file = kCublasLtFile);

// For the calling thread's current GPU. FAILED_PRECONDITION: the library does not start, as where there is no driver.
absl::StatusOr<std::unique_ptr<GemmLibrary>> NewCublasLt(const CublasLtApi& api);

}  // namespace sluice
