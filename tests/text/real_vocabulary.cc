#include "tests/text/real_vocabulary.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_tokenizer.h"

namespace sluice {

std::string CachedFile(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root =
      cache != nullptr && *cache != '\0' ? std::string(cache) : absl::StrCat(home == nullptr ? "" : home, "/.cache");
  return absl::StrCat(root, "/sluice/", name);
}

absl::StatusOr<RealVocabulary> LoadRealVocabulary(const std::string& name) {
  const std::string path = CachedFile(name);
  if (!std::filesystem::exists(path)) return absl::NotFoundError(absl::StrCat(path, " is not there"));
  RealVocabulary vocabulary;
  SLUICE_ASSIGN_OR_RETURN(Gguf file, Gguf::Open(path));
  vocabulary.file = std::make_unique<Gguf>(std::move(file));
  SLUICE_ASSIGN_OR_RETURN(std::optional<TokenizerSpec> spec, ReadTokenizerSpec(*vocabulary.file));
  if (!spec.has_value()) return absl::InvalidArgumentError(absl::StrCat(path, " has no vocabulary"));
  vocabulary.spec = *std::move(spec);
  SLUICE_ASSIGN_OR_RETURN(vocabulary.tokenizer, Tokenizer::Create(vocabulary.spec));
  return vocabulary;
}

}  // namespace sluice
