#include "engine/runtime/load_runner.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/summary.h"

namespace sluice {
namespace {

std::string Bytes(int64_t bytes) { return absl::StrCat(bytes, " bytes (", FormatBytes(bytes), ")"); }

// What a user can do about weights that do not fit.
std::string WeightRemedy(const Ops& ops) {
  return absl::StrCat("take a model with fewer or smaller weights",
                      ops.MemoryForKv().dedicated ? ", or --device cpu" : "");
}

absl::Status CheckWeightsFit(const LoadedModel& model, const Ops& ops) {
  const auto num_layers = int32_t(model.spec.layers.size());
  const std::vector<int64_t> table = {model.spec.vocab_size, model.spec.d_model};
  bool has_table = false;
  int64_t needed = 0;
  for (const TensorView& tensor : model.tensors) {
    if (IsIgnoredTensor(*model.naming, tensor.name, num_layers)) continue;
    // An output head that repeats tied embeddings is left out.
    if (model.spec.tied_embeddings && tensor.shape == table && std::exchange(has_table, true)) continue;
    needed += ops.LeastWeightBytes(tensor);
  }
  const int64_t available = ops.MemoryForKv().available_bytes;
  if (needed <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(model.path, ": the weights need at least ", Bytes(needed), ", but ",
                                                   Bytes(available), " are available; ", WeightRemedy(ops)));
}

// Adds to a lack of memory what does not fit and what to do about it.
absl::Status Explain(const absl::Status& status, absl::string_view what, absl::string_view remedy) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  return absl::ResourceExhaustedError(absl::StrCat(what, " does not fit: ", status.message(), "; ", remedy));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> LoadRunner(const LoadedModel& model, std::unique_ptr<Ops> ops,
                                                   const LoadRunnerOptions& options) {
  SLUICE_RETURN_IF_ERROR(CheckWeightsFit(model, *ops));
  absl::StatusOr<ModelWeights> weights = LoadWeights(model, ops.get());
  if (!weights.ok()) return Explain(weights.status(), "a weight", WeightRemedy(*ops));

  RunnerOptions runner;
  runner.block_size = options.kv.block_size;
  runner.kv_dtype = options.kv.dtype;
  runner.max_num_seqs = options.kv.max_num_seqs;
  runner.max_num_batched_tokens = options.kv.max_num_batched_tokens;
  runner.numerics = options.numerics;
  runner.max_logprobs = options.max_logprobs;
  runner.max_adjusted = options.max_adjusted;
  const auto size = [&](const KvMemory& memory) -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(const KvSizing sizing, SizeKvCache(model.spec, options.kv, memory));
    runner.num_blocks = sizing.num_blocks;
    runner.max_model_len = sizing.max_model_len;
    return absl::OkStatus();
  };
  // What steps need depends on how much there is to look at: sized as if they needed nothing, then with what they left.
  KvMemory memory = ops->MemoryForKv();
  SLUICE_RETURN_IF_ERROR(size(memory));
  absl::StatusOr<std::unique_ptr<Decoder>> decoder =
      Runner::Reserve(ops.get(), model.spec, *std::move(weights), runner);
  if (!decoder.ok()) {
    const std::string what = absl::StrCat("the workspace for steps of up to ", runner.max_num_batched_tokens,
                                          " tokens and ", runner.max_num_seqs, " sequences of ", runner.max_model_len);
    return Explain(decoder.status(), what, "lower --max-num-batched-tokens, --max-num-seqs or --max-model-len");
  }
  memory.available_bytes = std::min(memory.available_bytes, ops->MemoryForKv().available_bytes);
  SLUICE_RETURN_IF_ERROR(size(memory));
  return Runner::Create(std::move(ops), *std::move(decoder), runner);
}

}  // namespace sluice
