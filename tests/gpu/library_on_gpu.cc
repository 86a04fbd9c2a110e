#include "engine/base/status_macros.h"
#include "engine/ops/cuda/cublaslt.h"
#include "tests/gpu/library.h"

namespace sluice::cuda_testing {

absl::StatusOr<std::unique_ptr<GemmLibrary>> NewTestLibrary() {
  SLUICE_ASSIGN_OR_RETURN(const CublasLtApi api, LoadCublasLt());
  return NewCublasLt(api);
}

}  // namespace sluice::cuda_testing
