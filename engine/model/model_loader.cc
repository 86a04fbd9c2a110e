#include "engine/model/model_loader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_tokenizer.h"

namespace sluice {
namespace {

// The type that holds the most weights.
std::string MainWeightType(absl::Span<const TensorView> tensors) {
  std::map<TensorType, int64_t> elements;
  for (const TensorView& tensor : tensors) elements[tensor.type] += tensor.num_elements();
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "" : TensorTypeName(most->first);
}

absl::Status ReadText(LoadedModel* model) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<TokenizerSpec> spec, ReadTokenizerSpec(model->file));
  if (!spec.has_value()) return absl::OkStatus();
  if (spec->tokens.size() > size_t(model->spec.vocab_size)) {
    return absl::InvalidArgumentError(absl::StrCat(model->path, ": the tokenizer has ", spec->tokens.size(),
                                                   " tokens, but the embedding only ", model->spec.vocab_size,
                                                   " rows"));
  }
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(*std::move(spec));
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(), absl::StrCat(model->path, ": ", tokenizer.status().message()));
  }
  model->tokenizer = *std::move(tokenizer);
  SLUICE_ASSIGN_OR_RETURN(const std::optional<absl::string_view> chat_template,
                          model->file.FindString("tokenizer.chat_template"));
  model->chat_template = std::string(chat_template.value_or(""));
  return absl::OkStatus();
}

// generation_config.json beside the file wins over the file's own recommendations, field by field.
absl::Status ReadGeneration(LoadedModel* model) {
  SLUICE_ASSIGN_OR_RETURN(GenerationConfig config, ReadGenerationConfig(model->file));
  const std::string beside = (std::filesystem::path(model->path).parent_path() / "generation_config.json").string();
  std::error_code error;
  if (std::filesystem::exists(beside, error)) {
    SLUICE_ASSIGN_OR_RETURN(const ConfigJson json, ConfigJson::Open(beside));
    SLUICE_ASSIGN_OR_RETURN(const GenerationConfig other, ReadGenerationConfig(json));
    if (other.temperature.has_value()) config.temperature = other.temperature;
    if (other.top_p.has_value()) config.top_p = other.top_p;
    if (other.top_k.has_value()) config.top_k = other.top_k;
    if (other.min_p.has_value()) config.min_p = other.min_p;
    if (other.repetition_penalty.has_value()) config.repetition_penalty = other.repetition_penalty;
    config.eos_token_ids = other.eos_token_ids;
  }
  std::vector<int32_t>& eos = model->eos_token_ids;
  eos = std::exchange(config.eos_token_ids, {});
  for (int32_t id : eos) {
    if (id < model->spec.vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(beside, ": key 'eos_token_id' has ", id,
                                                   ", expected ids below the vocabulary's ", model->spec.vocab_size));
  }
  if (model->tokenizer != nullptr) {
    const absl::Span<const int32_t> ids = model->tokenizer->end_of_generation_ids();
    eos.insert(eos.end(), ids.begin(), ids.end());
  }
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  model->generation = std::move(config);
  return absl::OkStatus();
}

// Takes whole pages inside `bytes` out of the process's resident memory; the file still backs them.
void ReleasePages(absl::Span<const uint8_t> bytes) {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
  // Advice only: where the kernel does not follow it, memory stays resident and nothing else changes.
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::UnimplementedError(
        absl::StrCat(path, ": serving a folder is not supported yet; expected a GGUF file"));
  }
  SLUICE_ASSIGN_OR_RETURN(Gguf file, Gguf::Open(path));
  LoadedModel model(path, std::move(file));
  SLUICE_ASSIGN_OR_RETURN(model.architecture, FindArchitecture(model.file));
  SLUICE_ASSIGN_OR_RETURN(model.spec, ReadModelSpec(model.file));
  model.num_parameters = NumParameters(model.spec);
  model.weight_type = MainWeightType(model.file.tensors());
  for (const TensorView& tensor : model.file.tensors()) model.file_bytes += int64_t(tensor.data.size());
  SLUICE_RETURN_IF_ERROR(ReadText(&model));
  SLUICE_RETURN_IF_ERROR(ReadGeneration(&model));
  return model;
}

absl::StatusOr<ModelWeights> LoadWeights(const LoadedModel& model, Ops* ops) {
  absl::StatusOr<ModelWeights> weights =
      LoadWeights(model.spec, model.architecture->gguf_tensors, model.file.tensors(), model.path, ops);
  for (const TensorView& tensor : model.file.tensors()) ReleasePages(tensor.data);
  return weights;
}

}  // namespace sluice
