#include "tests/cuda_on_cpu/emulated_cublaslt.h"
#include "tests/gpu/library.h"

namespace sluice::cuda_testing {

absl::StatusOr<std::unique_ptr<GemmLibrary>> NewTestLibrary() { return NewCublasLt(EmulatedCublasLt()); }

}  // namespace sluice::cuda_testing
