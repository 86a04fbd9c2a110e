// The functions of the CUDA runtime that compiled kernels call on the host, without a runtime behind them. They stand
// in the program itself, so the linker looks for them nowhere else; one that is missing here is a duplicate there, and
// an error.
#include <cuda_runtime_api.h>

#include <map>
#include <utility>

#include "tests/cuda_build/recorded_launch.h"

namespace sluice::cuda {
namespace {

// Kernels register before main: all of it lies in functions.
std::map<const void*, std::string>& Names() {
  static std::map<const void*, std::string> names;
  return names;
}

std::vector<RecordedLaunch>& Launches() {
  static std::vector<RecordedLaunch> launches;
  return launches;
}

// What stands between <<< and >>>.
RecordedLaunch& Configured() {
  static RecordedLaunch launch;
  return launch;
}

RecordedLaunch Configuration(const dim3& grid, const dim3& block, size_t shared_bytes) {
  RecordedLaunch launch;
  launch.grid[0] = grid.x;
  launch.grid[1] = grid.y;
  launch.grid[2] = grid.z;
  launch.threads = block.x * block.y * block.z;
  launch.shared_bytes = shared_bytes;
  return launch;
}

cudaError_t Record(const void* function, RecordedLaunch launch) {
  launch.kernel = Names().at(function);
  Launches().push_back(std::move(launch));
  return cudaSuccess;
}

}  // namespace

std::vector<RecordedLaunch> TakeLaunches() { return std::exchange(Launches(), {}); }

extern "C" {

void** __cudaRegisterFatBinary(void*) { return nullptr; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  Names()[host_function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t) {
  Configured() = Configuration(grid, block, shared_bytes);
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return Record(kernel, Configured());
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host_function, void**) {
  RecordedLaunch launch = Configuration(config->gridDim, config->blockDim, config->dynamicSmemBytes);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    launch.dependent |= config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization;
  }
  return Record(host_function, launch);
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

}  // extern "C"

}  // namespace sluice::cuda
