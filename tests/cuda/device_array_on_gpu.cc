#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuda/device_array.h"

namespace sluice::cuda_testing {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

}  // namespace

void* Allocate(size_t bytes) {
  void* start = nullptr;
  Check(cudaMalloc(&start, bytes > 0 ? bytes : 1), "cudaMalloc");
  Check(cudaMemset(start, 0xff, bytes), "cudaMemset");
  return start;
}
void Free(void* start) { cudaFree(start); }
void CopyToDevice(void* device, const void* host, size_t bytes) {
  Check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}
void CopyToHost(void* host, const void* device, size_t bytes) {
  Check(cudaGetLastError(), "launch");
  Check(cudaDeviceSynchronize(), "kernels");
  Check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
}

}  // namespace sluice::cuda_testing
