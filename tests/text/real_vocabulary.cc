#include "tests/text/real_vocabulary.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_tokenizer.h"
#include "engine/text/hf_tokenizer.h"
#include "engine/text/recipes.h"

namespace sluice {

std::string CachedFile(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root =
      cache != nullptr && *cache != '\0' ? std::string(cache) : absl::StrCat(home == nullptr ? "" : home, "/.cache");
  return absl::StrCat(root, "/sluice/", name);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

absl::StatusOr<RealVocabulary> LoadRealVocabulary(const std::string& name) {
  const std::string path = CachedFile(name);
  RealVocabulary vocabulary;
  if (std::filesystem::is_directory(path)) {
    const std::string text = ReadFile(path + "/tokenizer.json"), ranks = ReadFile(path + "/tiktoken.model");
    if (text.empty() && ranks.empty()) return absl::NotFoundError(absl::StrCat(path, " has no vocabulary"));
    std::string config = ReadFile(path + "/tokenizer_config.json");
    if (text.empty() && config.empty()) config = R"({"tokenizer_class": "TikTokenTokenizer"})";
    SLUICE_ASSIGN_OR_RETURN(
        HfTokenizer read,
        ReadHfTokenizer({.tokenizer_json = text, .tiktoken_model = ranks, .tokenizer_config_json = config}));
    vocabulary.spec = std::move(read.spec);
    SLUICE_ASSIGN_OR_RETURN(vocabulary.tokenizer, Tokenizer::Create(vocabulary.spec));
    return vocabulary;
  }
  if (!std::filesystem::exists(path)) return absl::NotFoundError(absl::StrCat(path, " is not there"));
  SLUICE_ASSIGN_OR_RETURN(Gguf file, Gguf::Open(path));
  vocabulary.file = std::make_unique<Gguf>(std::move(file));
  SLUICE_ASSIGN_OR_RETURN(std::optional<TokenizerSpec> spec, ReadTokenizerSpec(*vocabulary.file));
  if (!spec.has_value()) return absl::InvalidArgumentError(absl::StrCat(path, " has no vocabulary"));
  vocabulary.spec = *std::move(spec);
  SLUICE_ASSIGN_OR_RETURN(vocabulary.tokenizer, Tokenizer::Create(vocabulary.spec));
  return vocabulary;
}

absl::StatusOr<RealVocabulary> LoadRanks(const std::string& name, absl::string_view pre) {
  constexpr size_t kTekkenTokens = 131'072, kTekkenSpecial = 1'000;
  const std::string path = CachedFile(name);
  if (!std::filesystem::exists(path)) return absl::NotFoundError(absl::StrCat(path, " is not there"));
  const std::string text = ReadFile(path);
  auto tokens = std::make_shared<std::vector<std::string>>();  // by id
  const auto add = [&tokens](absl::string_view base64) { absl::Base64Unescape(base64, &tokens->emplace_back()); };
  if (name.substr(name.size() - 5) == ".json") {
    tokens->resize(kTekkenSpecial);
    const nlohmann::json json = nlohmann::json::parse(text);
    for (size_t rank = 0; tokens->size() < kTekkenTokens; ++rank) {
      add(json["vocab"][rank]["token_bytes"].get<std::string>());
    }
  } else {
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      add(line.substr(0, line.find(' ')));
    }
  }
  RealVocabulary vocabulary;
  SLUICE_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(pre));
  vocabulary.spec.model = TokenizerModel::kRankedBpe;
  vocabulary.spec.tokens.assign(tokens->begin(), tokens->end());
  vocabulary.spec.pre_tokenizer = recipe->pre_tokenizer;
  vocabulary.spec.decoder = DecoderSpec();
  vocabulary.spec.storage = tokens;
  SLUICE_ASSIGN_OR_RETURN(vocabulary.tokenizer, Tokenizer::Create(vocabulary.spec));
  return vocabulary;
}

}  // namespace sluice
