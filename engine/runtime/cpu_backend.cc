#include "engine/ops/cpu/cpu_ops.h"
#include "engine/runtime/backend.h"

namespace sluice {
namespace {

absl::StatusOr<std::unique_ptr<Ops>> Open(const DeviceOptions&, const std::string& activations, int32_t num_threads) {
  CpuOpsOptions cpu;
  cpu.num_threads = num_threads;
  cpu.activations = activations == "int8"  ? ActivationType::kInt8
                    : activations == "f32" ? ActivationType::kF32
                                           : ActivationType::kInt16;
  return NewCpuOps(cpu);
}

}  // namespace

const Backend& CpuBackend() {
  static const auto* const cpu = new Backend{.name = "cpu",
                                             .activations = {"int16", "int8", "f32"},
                                             .kv_types = {"f16", "f32", "bf16"},
                                             .gemm_library_with = nullptr,
                                             .mla_expand_from = INT32_MAX,
                                             .find = [](int32_t) { return absl::OkStatus(); },
                                             .open = Open};
  return *cpu;
}

}  // namespace sluice
