// The vocabularies of real models, read from files that are too large to commit.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/io/gguf.h"
#include "engine/text/tokenizer.h"

namespace sluice {

// ${XDG_CACHE_HOME:-~/.cache}/sluice/NAME, where tests/run puts what tests need.
std::string CachedFile(const std::string& name);

struct RealVocabulary {
  std::unique_ptr<Gguf> file;  // owns what the spec points to, where that does not itself
  TokenizerSpec spec;
  std::unique_ptr<const Tokenizer> tokenizer;
};

// A GGUF file, or a folder with a tokenizer.json or tiktoken.model and perhaps a tokenizer_config.json. NOT_FOUND if it
// is not there.
absl::StatusOr<RealVocabulary> LoadRealVocabulary(const std::string& name);

// Ranks of tiktoken ("BASE64 RANK" in every line) or of Tekken (JSON, special tokens first), with the pattern of the
// GGUF pre-tokenizer `pre`. NOT_FOUND if the file is not there.
absl::StatusOr<RealVocabulary> LoadRanks(const std::string& name, absl::string_view pre);

// The whole file, or an empty string if there is none.
std::string ReadFile(const std::string& path);

}  // namespace sluice
