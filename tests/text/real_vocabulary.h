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
  std::unique_ptr<Gguf> file;  // owns what the spec points to
  TokenizerSpec spec;
  std::unique_ptr<const Tokenizer> tokenizer;
};

// NOT_FOUND if the file is not there.
absl::StatusOr<RealVocabulary> LoadRealVocabulary(const std::string& name);

}  // namespace sluice
