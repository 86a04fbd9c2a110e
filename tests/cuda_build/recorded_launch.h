// Launches of kernels that are written down instead of carried out: for a program on a machine without a GPU that wants
// to know what the engine's launchers would launch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::cuda {

struct RecordedLaunch {
  std::string kernel;       // mangled, as in the object file
  unsigned grid[3] = {};    // blocks
  unsigned threads = 0;     // of a block
  size_t shared_bytes = 0;  // dynamic
  bool dependent = false;   // may begin before the launch ahead of it has ended
};

// Those since the last call, in order. A program that links recording_runtime.cc gets them from any Launch... function
// of engine/ops/cuda/kernels; pointers that it gives them are never followed.
std::vector<RecordedLaunch> TakeLaunches();

}  // namespace sluice::cuda
