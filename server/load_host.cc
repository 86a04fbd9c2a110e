#include "server/load_host.h"

#include <sys/random.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/cpu_info.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_loader.h"
#include "engine/model/summary.h"
#include "engine/runtime/load_runner.h"
#include "engine/runtime/open_device.h"
#include "engine/text/chat_formatter.h"
#include "server/calls/convert.h"

namespace sluice {
namespace {

absl::StatusOr<std::unique_ptr<Runner>> NewRunner(const LoadedModel& loaded, const ServerOptions& options,
                                                  ServingDevice* device) {
  LogInfo(absl::StrCat("device: ", device->ops->Description()));
  LoadRunnerOptions load;
  load.kv.kv_memory_bytes = options.model.kv_memory_bytes;
  load.kv.block_size = options.model.block_size;
  load.kv.dtype = device->kv_dtype;
  if (options.model.max_model_len > 0) load.kv.max_model_len = options.model.max_model_len;
  load.kv.max_num_seqs = options.limits.max_num_seqs;
  load.kv.max_num_batched_tokens = options.limits.max_num_batched_tokens;
  load.numerics = device->numerics;
  load.max_logprobs = options.limits.max_logprobs < 0 ? INT32_MAX : options.limits.max_logprobs;
  load.max_adjusted = kMaxLogitBias + kMaxStopTokenIds + int32_t(loaded.eos_token_ids.size());
  return LoadRunner(loaded, std::move(device->ops), load);
}

absl::uint128 RandomRoot() {
  uint64_t words[2];
  SLUICE_CHECK(getrandom(words, sizeof words, 0) == ssize_t(sizeof words));
  return absl::MakeUint128(words[0], words[1]);
}

}  // namespace

absl::StatusOr<ModelHost> LoadModelHost(const ServerOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  // The files stay mapped in here only: what is served points into none of them, so that they may shrink afterwards.
  SLUICE_ASSIGN_OR_RETURN(LoadedModel loaded, LoadModel(options.model.path));
  ModelHost host;
  host.num_threads = options.model.num_threads > 0 ? options.model.num_threads : DefaultThreadCount();
  SLUICE_ASSIGN_OR_RETURN(ServingDevice device, OpenDevice(options.model.device, loaded.weight_type, host.num_threads));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Runner> runner, NewRunner(loaded, options, &device));

  if (const int32_t fits = runner->options().max_model_len;
      options.model.max_model_len == 0 && fits < loaded.spec.max_position) {
    LogWarning(absl::StrCat("requests are limited to ", fits, " tokens, below the model's context of ",
                            loaded.spec.max_position, ", because no longer sequence fits into the KV cache of ",
                            FormatBytes(runner->kv_bytes()),
                            "; raise --kv-memory, or set --max-model-len to confirm the limit"));
  }

  host.architecture = loaded.spec.architecture;
  host.weight_type = loaded.weight_type;
  host.activations = device.activations;
  host.kv_type = device.kv_type;
  host.device = device.name;
  host.num_parameters = uint64_t(loaded.num_parameters);
  host.context_length = loaded.spec.max_position;
  host.weight_bytes = uint64_t(runner->weight_bytes());
  host.kv_bytes = uint64_t(runner->kv_bytes());
  if (!loaded.chat_template.empty()) {
    auto formatter = ChatFormatter::Create(loaded.chat_template);
    if (formatter.ok()) {
      for (const std::string& warning : formatter->Warnings()) {
        LogWarning(absl::StrCat(loaded.path, ": chat template: ", warning));
      }
      host.chat_template = std::make_shared<const ChatFormatter>(*std::move(formatter));
    } else {
      host.chat_template_error = std::string(formatter.status().message());
      LogWarning(absl::StrCat(loaded.path, ": ", host.chat_template_error, "; Chat is not available"));
    }
  }
  host.defaults = loaded.generation;
  runner->SetEngineOptions(&host.engine);
  host.engine.eos_token_ids = loaded.eos_token_ids;
  host.engine.max_queued_requests = options.limits.max_queued_requests;
  host.engine.max_queued_tokens = options.limits.max_queued_tokens;
  host.engine.max_queue_seconds = options.limits.max_queue_seconds;
  host.engine.prefix_cache = options.model.prefix_cache;
  host.engine.prefix_cache_root = RandomRoot();
  host.runner = std::move(runner);
  host.tokenizer = std::move(loaded.tokenizer);
  host.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return host;
}

}  // namespace sluice
