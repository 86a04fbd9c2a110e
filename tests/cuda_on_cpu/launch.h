// Runs a kernel: its blocks one after another, in the thread order's order, on the calling host thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/cuda_on_cpu/fail.h"
#include "tests/cuda_on_cpu/order.h"

namespace sluice::cuda_on_cpu {

// Runs `thread_body` as every thread of the grid. Aborts where the sizes break a limit of sm_90: 1 to 1024 threads a
// block, 64 in z; 2^31 - 1 blocks in x, 65535 in y and in z; 227 KB of shared memory.
void RunGrid(const dim3& grid, const dim3& block, size_t shared_bytes, const std::function<void()>& thread_body,
             const SourceLine& where);

// Launches with their arguments, in order: what a captured graph holds.
using CapturedGraph = std::vector<std::function<void()>>;

// What a cudaStream_t that is not null points to. While there is a recording, launches are added to it and not run.
struct Stream {
  CapturedGraph* recording = nullptr;
};
inline CapturedGraph* RecordingOf(cudaStream_t stream) {
  return stream == nullptr ? nullptr : reinterpret_cast<const Stream*>(stream)->recording;
}

inline constexpr size_t kMaxParameterBytes = 4096;

// As on the device, the arguments are evaluated once and every thread has a copy of them.
template <class... Parameters, class... Arguments>
void Launch(SourceLine where, void (*kernel)(Parameters...), const dim3& grid, const dim3& block, size_t shared_bytes,
            cudaStream_t stream, const Arguments&... arguments) {
  static_assert((!std::is_reference_v<Parameters> && ...), "a kernel takes values and device pointers");
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel's parameters are copied as bytes");
  static_assert((size_t{0} + ... + sizeof(Parameters)) <= kMaxParameterBytes);
  const std::tuple<std::remove_const_t<Parameters>...> parameters(arguments...);
  const auto run = [=] {
    RunGrid(
        grid, block, shared_bytes, [&] { std::apply(kernel, parameters); }, where);
  };
  if (CapturedGraph* recording = RecordingOf(stream)) {
    recording->push_back(run);
  } else {
    run();
  }
}

// Counts of this host thread since it started: for measurements, and for tests that want to know that work was done.
struct Counts {
  uint64_t launches = 0;
  uint64_t blocks = 0;
  uint64_t switches = 0;
};
Counts CountsSoFar();

}  // namespace sluice::cuda_on_cpu
