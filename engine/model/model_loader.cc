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
#include "absl/strings/str_join.h"
#include "engine/base/in_file.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/io/gguf.h"
#include "engine/io/model_folder.h"
#include "engine/io/model_path.h"
#include "engine/io/safetensors_folder.h"
#include "engine/model/gguf_tokenizer.h"
#include "engine/model/model_config.h"
#include "engine/model/registry.h"
#include "engine/model/summary.h"
#include "engine/model/tensors_by_role.h"
#include "engine/text/hf_tokenizer.h"

namespace sluice {
namespace {

constexpr absl::string_view kGenerationConfig = "generation_config.json";

absl::StatusOr<ConfigJson> OpenJson(const ModelFolder& folder, absl::string_view name) {
  SLUICE_ASSIGN_OR_RETURN(const std::string path, folder.Find(name));
  return ConfigJson::Open(path);
}

// GGUF.

// generation_config.json beside the file wins over the file's own recommendations, field by field.
absl::Status ReadGgufGeneration(const Gguf& gguf, LoadedModel* model) {
  GenerationConfig& config = model->generation;
  config = ReadGenerationConfig(gguf, &model->warnings);
  const std::filesystem::path parent = std::filesystem::path(model->path).parent_path();
  SLUICE_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(parent.empty() ? "." : parent.string()));
  if (!folder.Has(kGenerationConfig)) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const ConfigJson json, OpenJson(folder, kGenerationConfig));
  SLUICE_ASSIGN_OR_RETURN(GenerationConfig other, ReadGenerationConfig(json, &model->warnings));
  if (other.temperature.has_value()) config.temperature = other.temperature;
  if (other.top_p.has_value()) config.top_p = other.top_p;
  if (other.top_k.has_value()) config.top_k = other.top_k;
  if (other.min_p.has_value()) config.min_p = other.min_p;
  if (other.repetition_penalty.has_value()) config.repetition_penalty = other.repetition_penalty;
  config.eos_token_ids = std::move(other.eos_token_ids);
  return absl::OkStatus();
}

// Fills all that the file says; returns its tokenizer, if it has one.
absl::StatusOr<std::optional<TokenizerSpec>> OpenGguf(LoadedModel* model) {
  SLUICE_ASSIGN_OR_RETURN(Gguf file, Gguf::Open(model->path));
  SLUICE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(file));
  SLUICE_ASSIGN_OR_RETURN(model->spec, ReadModelSpec(file));
  model->naming = &architecture->gguf_tensors;
  model->tensors.assign(file.tensors().begin(), file.tensors().end());
  SLUICE_RETURN_IF_ERROR(ReadGgufGeneration(file, model));
  SLUICE_ASSIGN_OR_RETURN(std::optional<TokenizerSpec> tokenizer, ReadTokenizerSpec(file));
  if (tokenizer.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<absl::string_view> chat_template,
                            file.FindString("tokenizer.chat_template"));
    model->chat_template = std::string(chat_template.value_or(""));
  }
  model->files = std::move(file).TakeFiles();
  return tokenizer;
}

// Hugging Face folders.

// Empty if there is no such file.
absl::StatusOr<MappedFile> MapIfThere(const ModelFolder& folder, absl::string_view name) {
  if (!folder.Has(name)) return MappedFile();
  SLUICE_ASSIGN_OR_RETURN(const std::string path, folder.Find(name));
  return MappedFile::Open(path);
}

absl::string_view TextOf(const MappedFile& file) {
  return absl::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

absl::StatusOr<std::optional<TokenizerSpec>> ReadFolderText(const ModelFolder& folder, LoadedModel* model) {
  SLUICE_ASSIGN_OR_RETURN(const MappedFile tokenizer, MapIfThere(folder, "tokenizer.json"));
  SLUICE_ASSIGN_OR_RETURN(const MappedFile tiktoken, MapIfThere(folder, "tiktoken.model"));
  SLUICE_ASSIGN_OR_RETURN(const MappedFile config, MapIfThere(folder, "tokenizer_config.json"));
  SLUICE_ASSIGN_OR_RETURN(const MappedFile special, MapIfThere(folder, "special_tokens_map.json"));
  SLUICE_ASSIGN_OR_RETURN(const MappedFile chat_template, MapIfThere(folder, "chat_template.jinja"));
  const HfTokenizerFiles files = {.tokenizer_json = TextOf(tokenizer),
                                  .tiktoken_model = TextOf(tiktoken),
                                  .tokenizer_config_json = TextOf(config),
                                  .special_tokens_map_json = TextOf(special),
                                  .chat_template_jinja = TextOf(chat_template)};
  if (files.tokenizer_json.empty() && files.tiktoken_model.empty()) {
    absl::StatusOr<std::string> source = ReadHfChatTemplate(files);
    if (!source.ok()) return InFile(folder.path(), source.status());
    model->chat_template = *std::move(source);
    return std::nullopt;
  }
  absl::StatusOr<HfTokenizer> read = ReadHfTokenizer(files);
  if (!read.ok()) return InFile(folder.path(), read.status());
  model->chat_template = std::move(read->chat_template);
  return std::optional<TokenizerSpec>(std::move(read->spec));
}

// End tokens are those of generation_config.json, and only where there is none those of config.json.
absl::Status ReadFolderGeneration(const ModelFolder& folder, const ConfigJson& config, LoadedModel* model) {
  if (folder.Has(kGenerationConfig)) {
    SLUICE_ASSIGN_OR_RETURN(const ConfigJson json, OpenJson(folder, kGenerationConfig));
    SLUICE_ASSIGN_OR_RETURN(model->generation, ReadGenerationConfig(json, &model->warnings));
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> eos, config.FindInts("eos_token_id", 0, INT32_MAX));
  if (eos.has_value()) model->generation.eos_token_ids.assign(eos->begin(), eos->end());
  return absl::OkStatus();
}

absl::Status ReadFolderTensors(const ModelFolder& folder, LoadedModel* model) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<Safetensors> files, OpenSafetensors(folder, &model->warnings));
  for (Safetensors& file : files) {
    model->tensors.insert(model->tensors.end(), file.tensors().begin(), file.tensors().end());
    model->files.push_back(std::move(file).TakeFile());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TokenizerSpec>> OpenFolder(LoadedModel* model) {
  SLUICE_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(model->path));
  SLUICE_ASSIGN_OR_RETURN(const ConfigJson config, OpenJson(folder, "config.json"));
  SLUICE_ASSIGN_OR_RETURN(ModelConfig read, ReadModelConfig(config));
  model->spec = std::move(read.spec);
  model->naming = &read.architecture->config_tensors;
  model->fp8_block = read.quantization.fp8_block;
  model->warnings = std::move(read.warnings);
  // Stored as plain bytes, which would be counted as what they are not.
  if (read.quantization.kind == Quantization::kMxfp4) model->weight_type = "MXFP4";
  SLUICE_RETURN_IF_ERROR(ReadFolderTensors(folder, model));
  SLUICE_RETURN_IF_ERROR(ReadFolderGeneration(folder, config, model));
  return ReadFolderText(folder, model);
}

// Both.

// The type that holds the most weights.
std::string MainWeightType(absl::Span<const TensorView> tensors) {
  std::map<TensorType, int64_t> elements;
  for (const TensorView& tensor : tensors) elements[tensor.type] += tensor.num_elements();
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "" : TensorTypeName(most->first);
}

// Published models have added tokens that the embedding lacks (Gemma 3's picture token beside a text-only model); text
// that holds one is refused when it is sent. Ordinary tokens without a row mean that the files do not belong together.
absl::Status CheckVocabulary(const TokenizerSpec& spec, LoadedModel* model) {
  const size_t num_rows = size_t(model->spec.vocab_size), num_tokens = spec.tokens.size();
  for (size_t id = num_rows; id < num_tokens; ++id) {
    const TokenType type = id < spec.types.size() ? spec.types[id] : TokenType::kNormal;
    if (spec.tokens[id].empty() || (type != TokenType::kNormal && type != TokenType::kByte)) continue;
    return absl::InvalidArgumentError(absl::StrCat(model->path, ": the tokenizer has ", num_tokens,
                                                   " tokens, but the embedding only ", num_rows, " rows"));
  }
  if (num_tokens > num_rows) {
    model->warnings.push_back(absl::StrCat(model->path, ": the tokenizer has ", num_tokens - num_rows,
                                           " added tokens that the model does not know; text with one of them is "
                                           "refused"));
  }
  return absl::OkStatus();
}

absl::Status MakeTokenizer(TokenizerSpec spec, LoadedModel* model) {
  SLUICE_RETURN_IF_ERROR(CheckVocabulary(spec, model));
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) return InFile(model->path, tokenizer.status());
  model->tokenizer = *std::move(tokenizer);
  return absl::OkStatus();
}

// "1, 2, 3", the first few of many.
std::string ListIds(absl::Span<const int32_t> ids) {
  constexpr size_t kMaxListed = 16;
  if (ids.size() <= kMaxListed) return absl::StrJoin(ids, ", ");
  return absl::StrCat(absl::StrJoin(ids.first(kMaxListed), ", "), " and ", ids.size() - kMaxListed, " more");
}

// Those that the publisher names and those of the tokenizer.
void CollectEndTokens(LoadedModel* model) {
  std::vector<int32_t>& eos = model->eos_token_ids;
  eos = std::exchange(model->generation.eos_token_ids, {});
  if (model->tokenizer != nullptr) {
    const absl::Span<const int32_t> ids = model->tokenizer->end_of_generation_ids();
    eos.insert(eos.end(), ids.begin(), ids.end());
  }
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  const auto beyond = std::lower_bound(eos.begin(), eos.end(), model->spec.vocab_size);
  if (beyond == eos.end()) return;
  model->warnings.push_back(
      absl::StrCat(model->path, beyond + 1 == eos.end() ? ": end token " : ": end tokens ",
                   ListIds({&*beyond, size_t(eos.end() - beyond)}), beyond + 1 == eos.end() ? " is" : " are",
                   " left out: the model's vocabulary has only ", model->spec.vocab_size, " tokens"));
  eos.erase(beyond, eos.end());
}

std::string Describe(const LoadedModel& model) {
  const size_t n = model.files.size();
  return absl::StrCat(model.path, ": ", model.spec.architecture, ", ", FormatCount(model.num_parameters),
                      " parameters, ", FormatBytes(model.file_bytes), " in ", model.tensors.size(), " tensors, mostly ",
                      model.weight_type, ", of ", n, n == 1 ? " file; " : " files; ",
                      model.tokenizer == nullptr
                          ? "no tokenizer: serves token ids only"
                          : absl::StrCat("tokenizer of ", model.tokenizer->vocab_size(), " tokens"),
                      model.chat_template.empty() ? ", no chat template" : ", chat template", "; end tokens ",
                      model.eos_token_ids.empty() ? "none" : ListIds(model.eos_token_ids));
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

absl::StatusOr<LoadedModel> OpenModel(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(CheckModelPath(path));
  LoadedModel model;
  model.path = path;
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  SLUICE_ASSIGN_OR_RETURN(std::optional<TokenizerSpec> tokenizer, is_folder ? OpenFolder(&model) : OpenGguf(&model));
  model.num_parameters = NumParameters(model.spec);
  if (model.weight_type.empty()) model.weight_type = MainWeightType(model.tensors);
  for (const TensorView& tensor : model.tensors) model.file_bytes += int64_t(tensor.data.size());
  if (tokenizer.has_value()) SLUICE_RETURN_IF_ERROR(MakeTokenizer(*std::move(tokenizer), &model));
  CollectEndTokens(&model);
  return model;
}

absl::StatusOr<LoadedModel> LoadModel(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(LoadedModel model, OpenModel(path));
  for (const std::string& warning : model.warnings) LogWarning(warning);
  LogInfo(Describe(model));
  return model;
}

absl::Status CheckTensors(LoadedModel* model) {
  SLUICE_ASSIGN_OR_RETURN(const TensorsByRole tensors, TensorsByRole::Match(model->spec, *model->naming, model->tensors,
                                                                            model->path, model->fp8_block));
  model->warnings.insert(model->warnings.end(), tensors.warnings().begin(), tensors.warnings().end());
  return absl::OkStatus();
}

absl::StatusOr<ModelWeights> LoadWeights(const LoadedModel& model, Ops* ops) {
  absl::StatusOr<ModelWeights> weights =
      LoadWeights(model.spec, *model.naming, model.tensors, model.path, ops, model.fp8_block);
  for (const TensorView& tensor : model.tensors) ReleasePages(tensor.data);
  return weights;
}

}  // namespace sluice
