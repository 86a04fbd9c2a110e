// sluice inspect: what a model file or a config.json says about memory, without a server.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/terminal.h"
#include "engine/io/model_folder.h"
#include "engine/io/model_path.h"
#include "engine/model/config_json.h"
#include "engine/model/model_config.h"
#include "engine/model/model_loader.h"
#include "engine/model/summary.h"

namespace sluice::cli {
namespace {

struct Flags {
  std::string path, kv_dtype = "f16";
  int64_t context = 0;
  bool json = false;
};

const std::map<std::string, int32_t>& KvBytes() {
  static const auto& bytes = *new std::map<std::string, int32_t>{{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"fp8_e4m3", 1}};
  return bytes;
}

// What a file says of a model, and what the server would warn of.
struct Inspected {
  ModelSpec spec;
  std::vector<std::string> warnings;
};

absl::StatusOr<Inspected> InspectConfig(const std::string& file) {
  absl::StatusOr<ConfigJson> config = ConfigJson::Open(file);
  if (!config.ok()) return config.status();
  absl::StatusOr<ModelConfig> model = ReadModelConfig(*config);
  if (!model.ok()) return model.status();
  return Inspected{std::move(model->spec), std::move(model->warnings)};
}

// By the server's own reader. A config.json alone, or a folder of one without weights, is looked at for what it is.
absl::StatusOr<Inspected> Inspect(const std::string& path) {
  if (absl::EndsWith(path, ".json")) return InspectConfig(path);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    absl::StatusOr<ModelFolder> folder = ModelFolder::Open(path);
    if (!folder.ok()) return folder.status();
    const bool has_weights =
        !folder->NamesThatEndIn(".safetensors").empty() || !folder->NamesThatEndIn(".safetensors.index.json").empty();
    if (!has_weights && folder->Has("config.json")) {
      absl::StatusOr<Inspected> config = InspectConfig((std::filesystem::path(path) / "config.json").string());
      if (config.ok()) {
        config->warnings.push_back(path + ": has no safetensors, so only its config.json was looked at");
      }
      return config;
    }
  }
  absl::StatusOr<LoadedModel> model = OpenModel(path);
  if (!model.ok()) return model.status();
  if (absl::Status status = CheckTensors(&*model); !status.ok()) return status;
  return Inspected{std::move(model->spec), std::move(model->warnings)};
}

std::string ToJson(const Inspected& inspected, int32_t bytes_per_value, int64_t context) {
  const ModelSpec& spec = inspected.spec;
  const ModelSummary summary = SummarizeModel(spec);
  return nlohmann::ordered_json{{"architecture", summary.architecture},
                                {"num_layers", summary.num_layers},
                                {"d_model", summary.d_model},
                                {"vocab_size", summary.vocab_size},
                                {"max_position", summary.max_position},
                                {"attention", summary.attention},
                                {"ffn", summary.ffn},
                                {"features", summary.features},
                                {"num_parameters", summary.num_parameters},
                                {"num_active_parameters", summary.num_active_parameters},
                                {"kv_groups", summary.kv_groups},
                                {"kv_block_bytes_per_token", summary.kv_group_values_per_token * bytes_per_value},
                                {"kv_bytes_per_token", summary.kv_values_per_token * bytes_per_value},
                                {"context", context},
                                {"kv_bytes_for_context", sluice::KvBytes(spec, context, bytes_per_value)},
                                {"warnings", inspected.warnings}}
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

int Run(const Flags& flags) {
  if (absl::Status status = CheckModelPath(flags.path); !status.ok()) return Report(status);
  const absl::StatusOr<Inspected> inspected = Inspect(flags.path);
  if (!inspected.ok()) return Report(inspected.status());
  for (const std::string& warning : inspected->warnings) std::cerr << "warning: " << warning << "\n";
  const ModelSpec& spec = inspected->spec;
  const int32_t bytes_per_value = KvBytes().at(flags.kv_dtype);
  const int64_t context = flags.context > 0 ? flags.context : spec.max_position;
  std::cout << (flags.json ? ToJson(*inspected, bytes_per_value, context) + "\n"
                           : FormatModelSummary(spec, bytes_per_value, context))
            << std::flush;
  return kExitOk;
}

}  // namespace

Command AddInspect(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("inspect", "Show the size and KV cache memory of a model file");
  command->add_option("MODEL", flags->path, "Path of a GGUF file, a Hugging Face folder or a config.json")
      ->type_name("")
      ->required();
  command
      ->add_option("--context", flags->context,
                   "Compute KV cache memory for N tokens (default: the model's own context length)")
      ->type_name("N")
      ->check(WholeNumber(1, 1 << 30))  // the server's limit; and the bytes stay below 2^53, which JSON can carry
      ->transform(Decimal);
  command->add_option("--kv-dtype", flags->kv_dtype, "Data type of the KV cache: f32, f16, bf16 or fp8_e4m3")
      ->type_name("TYPE")
      ->check(OneOf({"f32", "f16", "bf16", "fp8_e4m3"}))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  return [flags] { return Run(*flags); };
}

}  // namespace sluice::cli
