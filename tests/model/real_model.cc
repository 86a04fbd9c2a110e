#include "tests/model/real_model.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace sluice::testing {
namespace {

std::string RealModelPath() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root =
      cache != nullptr && *cache != '\0' ? std::string(cache) : absl::StrCat(home == nullptr ? "" : home, "/.cache");
  return absl::StrCat(root, "/sluice/SmolLM2-135M-Instruct.Q4_1.gguf");
}

}  // namespace

std::string RealModelMissing() { return absl::StrCat(RealModelPath(), " is not there; tests/run fetches it"); }

const LoadedModel* RealModel() {
  static const std::unique_ptr<const LoadedModel> model = []() -> std::unique_ptr<const LoadedModel> {
    if (!std::filesystem::exists(RealModelPath())) return nullptr;
    absl::StatusOr<LoadedModel> loaded = LoadModel(RealModelPath());
    if (!loaded.ok()) {
      std::cerr << loaded.status() << std::endl;
      std::abort();
    }
    return std::make_unique<const LoadedModel>(*std::move(loaded));
  }();
  return model.get();
}

absl::StatusOr<std::unique_ptr<Runner>> NewRealRunner(const RealRunnerOptions& options) {
  const LoadedModel& model = *RealModel();
  CpuOpsOptions cpu;
  cpu.num_threads = options.num_threads;
  cpu.isa = options.isa;
  cpu.activations = options.activations;
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Ops> ops, NewCpuOps(cpu));
  SLUICE_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(model, ops.get()));
  RunnerOptions runner;
  runner.num_blocks = options.num_blocks;
  runner.kv_dtype = options.kv_dtype;
  runner.max_model_len = options.max_model_len;
  runner.max_num_seqs = options.max_num_seqs;
  runner.max_num_batched_tokens = options.max_num_batched_tokens;
  return Runner::Create(std::move(ops), model.spec, std::move(weights), runner);
}

}  // namespace sluice::testing
