#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "tests/cuda/device_array.h"

namespace sluice::cuda_testing {
namespace {

// Bytes before and after each array that nobody may write. Reads beyond an array are compute-sanitizer's business.
constexpr size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xa5;

[[noreturn]] void Fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::abort();
}

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Fail(what, cudaGetErrorString(error));
}

// Tests use one thread.
std::map<void*, size_t>& Sizes() {
  static auto* sizes = new std::map<void*, size_t>;
  return *sizes;
}

void CheckGuard(const unsigned char* guard, const char* where) {
  std::vector<unsigned char> bytes(kGuardBytes);
  Check(cudaMemcpy(bytes.data(), guard, kGuardBytes, cudaMemcpyDeviceToHost), "copy of a guard");
  if (std::any_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b != kGuard; })) {
    Fail("device memory was written", where);
  }
}

}  // namespace

void* Allocate(size_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, kGuardBytes + bytes + kGuardBytes), "cudaMalloc");
  Check(cudaMemset(memory, kGuard, kGuardBytes + bytes + kGuardBytes), "cudaMemset");
  unsigned char* start = static_cast<unsigned char*>(memory) + kGuardBytes;
  Check(cudaMemset(start, 0xff, bytes), "cudaMemset");
  Sizes()[start] = bytes;
  return start;
}
void Free(void* start) {
  auto* data = static_cast<unsigned char*>(start);
  const size_t bytes = Sizes().at(start);
  Check(cudaDeviceSynchronize(), "kernels");
  CheckGuard(data - kGuardBytes, "before the start of an array");
  CheckGuard(data + bytes, "past the end of an array");
  Sizes().erase(start);
  cudaFree(data - kGuardBytes);
}
void CopyToDevice(void* device, const void* host, size_t bytes) {
  Check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}
void CopyToHost(void* host, const void* device, size_t bytes) {
  Check(cudaGetLastError(), "launch");
  Check(cudaDeviceSynchronize(), "kernels");
  Check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
}

}  // namespace sluice::cuda_testing
