#include <cstring>

#include "tests/cuda/device_array.h"
#include "tests/cuda_on_cpu/device_memory.h"

namespace sluice::cuda_testing {

void* Allocate(size_t bytes) { return cuda_on_cpu::AllocateDevice(bytes); }
void Free(void* start) { cuda_on_cpu::FreeDevice(start); }
void CopyToDevice(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}
void CopyToHost(void* host, const void* device, size_t bytes) {
  cuda_on_cpu::CheckDeviceMemory(cuda_on_cpu::SourceLine::current());
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace sluice::cuda_testing
