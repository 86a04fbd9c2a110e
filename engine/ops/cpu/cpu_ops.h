// Ops on the CPU: block-quantised weights in a packed form (packed_format.h), integer dot products, f32 in between, a
// paged KV cache of f16, f32 or bf16, its own threads. The same bits from every instruction set and number of threads.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/base/isa.h"
#include "engine/ops/cpu/packed_format.h"
#include "engine/ops/ops.h"

namespace sluice {

struct CpuOpsOptions {
  int num_threads = 0;     // the caller included; 0: DefaultThreadCount() of engine/base/cpu_info.h
  std::optional<Isa> isa;  // none: the best that the machine has
  // What block-quantised weights are multiplied with. Weights stored as plain floats always take f32.
  ActivationType activations = ActivationType::kInt16;
};

// INVALID_ARGUMENT: the machine lacks `isa`, or num_threads is negative.
absl::StatusOr<std::unique_ptr<Ops>> NewCpuOps(const CpuOpsOptions& options);

}  // namespace sluice
