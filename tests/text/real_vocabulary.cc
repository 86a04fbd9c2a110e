#include "tests/text/real_vocabulary.h"

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

absl::StatusOr<TokenizerSpec> ReadSpec(const Gguf& gguf) {
  const auto id = [&gguf](absl::string_view key) -> absl::StatusOr<std::optional<int32_t>> {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                            gguf.FindInt(absl::StrCat("tokenizer.ggml.", key), 0, INT32_MAX));
    return value.has_value() ? std::optional<int32_t>(static_cast<int32_t>(*value)) : std::nullopt;
  };
  TokenizerSpec spec;
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view model, gguf.GetString("tokenizer.ggml.model"));
  SLUICE_ASSIGN_OR_RETURN(spec.tokens, gguf.GetStringArray("tokenizer.ggml.tokens"));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> types, gguf.GetIntArray("tokenizer.ggml.token_type"));
  for (const int64_t type : types) spec.types.push_back(static_cast<TokenType>(type));
  if (model == "llama") {
    spec.model = TokenizerModel::kSentencePieceBpe;
    SLUICE_ASSIGN_OR_RETURN(spec.scores, gguf.GetFloatArray("tokenizer.ggml.scores"));
  } else {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<absl::string_view> merges, gguf.GetStringArray("tokenizer.ggml.merges"));
    for (const absl::string_view merge : merges) spec.merges.push_back(ParseMergeRule(merge));
    SLUICE_ASSIGN_OR_RETURN(const absl::string_view pre, gguf.GetString("tokenizer.ggml.pre"));
    spec.pre = std::string(pre);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<bool> add_bos, gguf.FindBool("tokenizer.ggml.add_bos_token"));
  spec.add_bos = add_bos.value_or(false);
  SLUICE_ASSIGN_OR_RETURN(spec.bos_id, id("bos_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec.eos_id, id("eos_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec.unk_id, id("unknown_token_id"));
  SLUICE_ASSIGN_OR_RETURN(spec.pad_id, id("padding_token_id"));
  return spec;
}

}  // namespace

std::string CachedFile(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root =
      cache != nullptr && *cache != '\0' ? std::string(cache) : absl::StrCat(home == nullptr ? "" : home, "/.cache");
  return absl::StrCat(root, "/sluice/", name);
}

absl::StatusOr<RealVocabulary> LoadRealVocabulary(const std::string& name) {
  const std::string path = CachedFile(name);
  if (!std::filesystem::exists(path))
    return absl::NotFoundError(absl::StrCat(path, " is not there; tests/run fetches it"));
  RealVocabulary vocabulary;
  SLUICE_ASSIGN_OR_RETURN(Gguf file, Gguf::Open(path));
  vocabulary.file = std::make_unique<Gguf>(std::move(file));
  SLUICE_ASSIGN_OR_RETURN(vocabulary.spec, ReadSpec(*vocabulary.file));
  SLUICE_ASSIGN_OR_RETURN(vocabulary.tokenizer, Tokenizer::Create(vocabulary.spec));
  return vocabulary;
}

}  // namespace sluice
