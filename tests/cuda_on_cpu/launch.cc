#include "tests/cuda_on_cpu/launch.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/shared_memory.h"

namespace sluice::cuda_on_cpu {
namespace {

thread_local Counts counts;

void CheckLimits(const dim3& grid, const dim3& block, size_t shared_bytes, const SourceLine& where) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  Require(threads > 0, "a launch without threads", where);
  Require(threads <= kMaxThreads, "a launch with more than 1024 threads a block", where);
  Require(block.z <= 64, "a launch with more than 64 threads in z", where);
  Require(grid.x > 0 && grid.y > 0 && grid.z > 0, "a launch without blocks", where);
  Require(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, "a launch with too many blocks", where);
  Require(shared_bytes <= kMaxSharedBytes, "a launch with more than 227 KB of shared memory", where);
}

}  // namespace

void RunGrid(const dim3& grid, const dim3& block_size, size_t shared_bytes, const std::function<void()>& thread_body,
             const SourceLine& where) {
  CheckLimits(grid, block_size, shared_bytes, where);
  Block& block = ThisBlock();
  block.BeginLaunch(where);
  std::vector<uint64_t> order(uint64_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), uint64_t{0});
  if (block.order() == ThreadOrder::kReverse) std::reverse(order.begin(), order.end());
  if (block.order() == ThreadOrder::kRandom)
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[block.Random() % i]);
  for (uint64_t number = 0; number < order.size(); ++number) {
    const uint64_t i = order[number];
    const uint3 index = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                         static_cast<unsigned>(i / (uint64_t{grid.x} * grid.y))};
    block.Run(number, grid, block_size, index, shared_bytes, thread_body);
  }
  block.EndLaunch();
  CheckDeviceMemory(where);
  ++counts.launches;
  counts.blocks += order.size();
}

Counts CountsSoFar() {
  counts.switches = ThisBlock().switches();
  return counts;
}

}  // namespace sluice::cuda_on_cpu
