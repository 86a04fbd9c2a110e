// What the measuring programs have in common: arguments, the device, the report, and how they end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/ops/cuda/device.h"
#include "tests/gpu/report.h"

namespace sluice::cuda_testing {

struct ProgramArgs {
  std::vector<std::string> names;  // of parts or models, at least one
  std::string json;                // a file to write, or empty
  bool tiny = false;
};

using ProgramBody = absl::FunctionRef<absl::Status(const ProgramArgs&, std::unique_ptr<Device>, Report*)>;

// main of a program: PROGRAM [--tiny] [--json FILE] [NAME ...], each name one of `known`, all of them if none is given.
// Returns 0; kNoGpu where there is no GPU; 1 after an error; 2 for arguments that are none. What is wrong it says in
// one line on stderr.
int RunProgram(int argc, char** argv, const std::vector<std::string>& known, ProgramBody run);

}  // namespace sluice::cuda_testing
