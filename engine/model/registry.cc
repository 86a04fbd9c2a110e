#include "engine/model/registry.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/model/architectures.h"

namespace sluice {
namespace {

absl::Status NotInTable(const std::string& file, absl::string_view key, absl::string_view found,
                        std::vector<absl::string_view> known) {
  return absl::UnimplementedError(
      absl::StrCat(file, ": ", key, " '", found, "' is not supported yet; supported: ", absl::StrJoin(known, ", ")));
}

absl::Status InFile(const std::string& file, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(file, ": ", status.message()));
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
      {.config_name = "deepseek_v3",
       .spec_from_config = DeepseekV3FromConfig,
       .config_tensors = DeepseekV3TensorNames()},
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
  return spec;
}

absl::StatusOr<ModelSpec> ReadModelSpec(const ConfigJson& config) {
  SLUICE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(config));
  SLUICE_ASSIGN_OR_RETURN(ModelSpec spec, architecture->spec_from_config(config));
  if (absl::Status status = ValidateModelSpec(spec); !status.ok()) return InFile(config.name(), status);
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
