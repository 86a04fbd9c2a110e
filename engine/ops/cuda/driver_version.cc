#include "engine/ops/cuda/driver_version.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

std::string CudaVersion(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

std::string DriverTooOld(int driver, int runtime) {
  const std::string found =
      driver == 0 ? "there is no driver" : absl::StrCat("the driver is for CUDA ", CudaVersion(driver));
  // The first branch of drivers for a major version serves all of its minor ones.
  const char* needs = runtime / 1000 == 13 ? ": needs NVIDIA driver 580 or newer" : "";
  return absl::StrCat(found, ", expected ", driver == 0 ? "one for CUDA " : "", CudaVersion(runtime), needs);
}

}  // namespace sluice
