#include "engine/runtime/load_runner.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<Runner>> LoadRunner(const LoadedModel& model, std::unique_ptr<Ops> ops,
                                                   const LoadRunnerOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(model, ops.get()));
  SLUICE_ASSIGN_OR_RETURN(const KvSizing sizing, SizeKvCache(model.spec, options.kv, AvailableMemoryBytes()));
  RunnerOptions runner;
  runner.block_size = options.kv.block_size;
  runner.num_blocks = sizing.num_blocks;
  runner.kv_dtype = options.kv.dtype;
  runner.max_model_len = sizing.max_model_len;
  runner.max_num_seqs = options.kv.max_num_seqs;
  runner.max_num_batched_tokens = options.kv.max_num_batched_tokens;
  runner.mla_expand_from = options.mla_expand_from;
  return Runner::Create(std::move(ops), model.spec, std::move(weights), runner);
}

}  // namespace sluice
