// The real model of the tests, SmolLM2-135M-Instruct as Q4_1, from where tests/run and deploy/quickstart put it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model_loader.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/runtime/runner.h"

namespace sluice::testing {

// Null if the file is not there; RealModelMissing() says so in a sentence. Opened once.
const LoadedModel* RealModel();
std::string RealModelMissing();

struct RealRunnerOptions {
  ActivationType activations = ActivationType::kInt16;
  KvDType kv_dtype = KvDType::kF16;
  int num_threads = 2;
  std::optional<Isa> isa = {};
  int32_t num_blocks = 1024;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  int32_t max_model_len = 8192;
};

// REQUIRES: RealModel() is not null.
absl::StatusOr<std::unique_ptr<Runner>> NewRealRunner(const RealRunnerOptions& options);

}  // namespace sluice::testing
