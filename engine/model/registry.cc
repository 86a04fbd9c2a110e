#include "engine/model/registry.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/in_file.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"
#include "engine/model/kv_groups.h"

namespace sluice {
namespace {

absl::Status NotInTable(const std::string& file, absl::string_view key, absl::string_view found,
                        std::vector<absl::string_view> known) {
  return absl::UnimplementedError(
      absl::StrCat(file, ": ", key, " ", Quote(found), " is not supported; supported: ", absl::StrJoin(known, ", ")));
}

}  // namespace

absl::Span<const Architecture> Architectures() {
  static const Architecture kTable[] = {
      {.gguf_name = "llama",
       .spec_from_gguf = LlamaFromGguf,
       .gguf_tensors = GgufTensorNames(),
       .config_name = "llama",
       .spec_from_config = LlamaFromConfig,
       .config_tensors = HuggingFaceTensorNames()},
      {.gguf_name = "gpt2",
       .spec_from_gguf = Gpt2FromGguf,
       .gguf_tensors = Gpt2GgufTensorNames(),
       .config_name = "gpt2",
       .spec_from_config = Gpt2FromConfig,
       .config_tensors = Gpt2FolderTensorNames()},
      {.config_name = "mistral", .spec_from_config = MistralFromConfig, .config_tensors = HuggingFaceTensorNames()},
      {.config_name = "mixtral", .spec_from_config = MixtralFromConfig, .config_tensors = MixtralFolderTensorNames()},
      {.gguf_name = "qwen2",
       .spec_from_gguf = Qwen2FromGguf,
       .gguf_tensors = GgufTensorNames(),
       .config_name = "qwen2",
       .spec_from_config = Qwen2FromConfig,
       .config_tensors = HuggingFaceTensorNames()},
      {.gguf_name = "qwen3",
       .spec_from_gguf = Qwen3FromGguf,
       .gguf_tensors = GgufTensorNames(),
       .config_name = "qwen3",
       .spec_from_config = Qwen3FromConfig,
       .config_tensors = HuggingFaceTensorNames()},
      {.gguf_name = "qwen3moe",
       .spec_from_gguf = Qwen3MoeFromGguf,
       .gguf_tensors = GgufTensorNames(),
       .config_name = "qwen3_moe",
       .spec_from_config = Qwen3MoeFromConfig,
       .config_tensors = HuggingFaceTensorNames()},
      {.gguf_name = "olmo2",
       .spec_from_gguf = Olmo2FromGguf,
       .gguf_tensors = GgufTensorNames(),
       .config_name = "olmo2",
       .spec_from_config = Olmo2FromConfig,
       .config_tensors = Olmo2FolderTensorNames()},
      {.gguf_name = "smollm3",
       .spec_from_gguf = SmolLm3FromGguf,
       .gguf_tensors = GgufTensorNames(),
       .config_name = "smollm3",
       .spec_from_config = SmolLm3FromConfig,
       .config_tensors = HuggingFaceTensorNames()},
      {.gguf_name = "phi3",
       .spec_from_gguf = Phi3FromGguf,
       .gguf_tensors = Phi3GgufTensorNames(),
       .gguf_tokens_strip_right = true,
       .config_name = "phi3",
       .spec_from_config = Phi3FromConfig,
       .config_tensors = Phi3FolderTensorNames()},
      {.gguf_name = "deepseek2",
       .spec_from_gguf = DeepseekFromGguf,
       .gguf_tensors = DeepseekGgufTensorNames(),
       .config_name = "deepseek_v2",
       .spec_from_config = DeepseekV2FromConfig,
       .config_tensors = DeepseekFolderTensorNames()},
      {.config_name = "deepseek_v3",
       .spec_from_config = DeepseekV3FromConfig,
       .config_tensors = DeepseekFolderTensorNames()},
      {.config_name = "kimi_k2",
       .spec_from_config = DeepseekV3FromConfig,
       .config_tensors = DeepseekFolderTensorNames()},
      {.gguf_name = "gemma2",
       .spec_from_gguf = Gemma2FromGguf,
       .gguf_tensors = GemmaGgufTensorNames(),
       .config_name = "gemma2",
       .spec_from_config = Gemma2FromConfig,
       .config_tensors = GemmaFolderTensorNames()},
      {.gguf_name = "gemma3",
       .spec_from_gguf = Gemma3FromGguf,
       .gguf_tensors = GemmaGgufTensorNames(),
       .config_name = "gemma3",
       .spec_from_config = Gemma3FromConfig,
       .config_tensors = GemmaFolderTensorNames()},
      {.config_name = "gemma3_text",
       .spec_from_config = Gemma3TextFromConfig,
       .config_tensors = GemmaFolderTensorNames()},
      {.gguf_name = "gpt-oss",
       .spec_from_gguf = GptOssFromGguf,
       .gguf_tensors = GptOssGgufTensorNames(),
       .config_name = "gpt_oss",
       .spec_from_config = GptOssFromConfig,
       .config_tensors = GptOssFolderTensorNames()},
      {.gguf_name = "llama4",
       .spec_from_gguf = Llama4FromGguf,
       .gguf_tensors = GgufTensorNames(),
       .config_name = "llama4",
       .spec_from_config = Llama4FromConfig,
       .config_tensors = Llama4FolderTensorNames()},
      {.config_name = "llama4_text",
       .spec_from_config = Llama4TextFromConfig,
       .config_tensors = Llama4FolderTensorNames()},
  };
  return kTable;
}

absl::StatusOr<const Architecture*> FindArchitecture(const Gguf& gguf) {
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view name, gguf.GetString("general.architecture"));
  std::vector<absl::string_view> known;
  for (const Architecture& row : Architectures()) {
    if (row.gguf_name.empty()) continue;
    if (row.gguf_name == name) return &row;
    known.push_back(row.gguf_name);
  }
  return NotInTable(gguf.name(), "general.architecture", name, known);
}

absl::StatusOr<const Architecture*> FindArchitecture(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const std::string name, config.GetString("model_type"));
  std::vector<absl::string_view> known;
  for (const Architecture& row : Architectures()) {
    if (row.config_name.empty()) continue;
    if (row.config_name == name) return &row;
    known.push_back(row.config_name);
  }
  return NotInTable(config.name(), "model_type", name, known);
}

absl::StatusOr<ModelSpec> ReadModelSpec(const Gguf& gguf) {
  SLUICE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(gguf));
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, architecture->spec_from_gguf(gguf));
  if (absl::Status status = ValidateModelSpec(spec); !status.ok()) return InFile(gguf.name(), status);
  AssignKvGroups(&spec);
  return spec;
}

absl::StatusOr<ModelSpec> ReadModelSpec(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(config));
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, architecture->spec_from_config(config));
  if (absl::Status status = ValidateModelSpec(spec); !status.ok()) return InFile(config.name(), status);
  AssignKvGroups(&spec);
  return spec;
}

absl::StatusOr<ModelSpec> ReadModelSpec(const std::string& path) {
  std::error_code error;
  std::string file = path;
  if (std::filesystem::is_directory(path, error)) file = (std::filesystem::path(path) / "config.json").string();
  if (absl::EndsWith(file, ".json")) {
    SLUICE_ASSIGN_OR_RETURN(const ConfigJson config, ConfigJson::Open(file));
    return ReadModelSpec(config);
  }
  SLUICE_ASSIGN_OR_RETURN(const Gguf gguf, Gguf::Open(file));
  return ReadModelSpec(gguf);
}

}  // namespace sluice
