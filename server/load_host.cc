#include "server/load_host.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_info.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_loader.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/runtime/load_runner.h"
#include "engine/text/chat_template.h"

namespace sluice {
namespace {

// What the CPU computes in; nullopt: cannot.
std::optional<ActivationType> CpuActivations(const std::string& name) {
  if (name == "auto" || name == "int16") return ActivationType::kInt16;
  if (name == "int8") return ActivationType::kInt8;
  if (name == "f32") return ActivationType::kF32;
  return std::nullopt;
}

// What the CPU stores keys and values in; nullopt: cannot.
std::optional<KvDType> CpuKvType(const std::string& name) {
  if (name == "auto" || name == "f16") return KvDType::kF16;
  if (name == "f32") return KvDType::kF32;
  if (name == "bf16") return KvDType::kBF16;
  return std::nullopt;
}

GenerationDefaults Defaults(const GenerationConfig& config) {
  return {.temperature = config.temperature,
          .top_p = config.top_p,
          .top_k = config.top_k,
          .min_p = config.min_p,
          .repetition_penalty = config.repetition_penalty};
}

absl::StatusOr<std::unique_ptr<Runner>> NewRunner(const LoadedModel& loaded, const ServerOptions& options,
                                                  int32_t num_threads) {
  CpuOpsOptions cpu;
  cpu.num_threads = num_threads;
  cpu.activations = *CpuActivations(options.model.activations);
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Ops> ops, NewCpuOps(cpu));
  LogInfo(absl::StrCat("device: ", ops->Description()));
  LoadRunnerOptions load;
  load.kv.kv_memory_bytes = options.model.kv_memory_bytes;
  load.kv.block_size = options.model.block_size;
  load.kv.dtype = *CpuKvType(options.model.kv_dtype);
  if (options.model.max_model_len > 0) load.kv.max_model_len = options.model.max_model_len;
  load.kv.max_num_seqs = options.limits.max_num_seqs;
  load.kv.max_num_batched_tokens = options.limits.max_num_batched_tokens;
  load.mla_expand_from = options.model.mla_expand_from;
  return LoadRunner(loaded, std::move(ops), load);
}

}  // namespace

absl::Status CheckDevice(const ModelOptions& options) {
  if (options.device == "cuda") {
    return absl::InvalidArgumentError("--device: found 'cuda', expected auto or cpu: this build has no CUDA engine");
  }
  if (!CpuActivations(options.activations).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--activations: found '", options.activations,
                                                   "', expected auto, int16, int8 or f32 on the cpu device"));
  }
  if (!CpuKvType(options.kv_dtype).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-dtype: found '", options.kv_dtype, "', expected auto, f16, f32 or bf16 on the cpu device"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelHost> LoadModelHost(const ServerOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SLUICE_ASSIGN_OR_RETURN(LoadedModel opened, LoadModel(options.model.path));
  const auto loaded = std::make_shared<const LoadedModel>(std::move(opened));
  ModelHost host;
  host.num_threads = options.model.num_threads > 0 ? options.model.num_threads : DefaultThreadCount();
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Runner> runner, NewRunner(*loaded, options, host.num_threads));

  host.architecture = loaded->spec.architecture;
  host.weight_type = loaded->weight_type;
  host.activations = options.model.activations == "auto" ? "int16" : options.model.activations;
  host.kv_type = options.model.kv_dtype == "auto" ? "f16" : options.model.kv_dtype;
  host.device = "cpu";
  host.num_parameters = uint64_t(loaded->num_parameters);
  host.context_length = loaded->spec.max_position;
  host.weight_bytes = uint64_t(runner->weight_bytes());
  host.kv_bytes = uint64_t(runner->kv_bytes());
  if (!loaded->chat_template.empty()) {
    auto parsed = ChatTemplate::Parse(loaded->chat_template);
    if (parsed.ok()) {
      host.chat_template = std::make_shared<const ChatTemplate>(*std::move(parsed));
    } else {
      LogWarning(absl::StrCat(loaded->path, ": ", parsed.status().message(), "; Chat is not available"));
    }
  }
  host.defaults = Defaults(loaded->generation);
  host.engine.max_model_len = runner->options().max_model_len;
  host.engine.vocab_size = loaded->spec.vocab_size;
  host.engine.eos_token_ids = loaded->eos_token_ids;
  host.engine.block_size = runner->options().block_size;
  host.engine.num_blocks = runner->options().num_blocks;
  host.engine.kv_groups = runner->kv_groups();
  host.engine.max_num_seqs = runner->options().max_num_seqs;
  host.engine.max_num_batched_tokens = runner->options().max_num_batched_tokens;
  host.engine.max_queued_requests = options.limits.max_queued_requests;
  host.engine.max_queued_tokens = options.limits.max_queued_tokens;
  host.runner = std::move(runner);
  // Shares the ownership of the mapped file, into which the tokenizer points.
  if (loaded->tokenizer != nullptr) host.tokenizer = {loaded, loaded->tokenizer.get()};
  host.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return host;
}

}  // namespace sluice
