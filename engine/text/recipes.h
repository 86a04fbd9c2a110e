// How the families of byte-level tokenizers that GGUF files name treat text before the merges.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

struct Recipe {
  std::vector<absl::string_view> names;  // GGUF's tokenizer.ggml.pre
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<NormalizerStep> normalizer = {};
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges make of it
  bool add_bos = false;        // where the file does not say whether Encode adds BOS
};

// INVALID_ARGUMENT lists the known names. The result lives for ever.
absl::StatusOr<const Recipe*> FindRecipe(absl::string_view name);

// Patterns that tokenizer.json files leave out because a component stands for them.
// GPT-2's: contractions, then runs of letters, of numbers and of the rest, each with one space before it.
extern const absl::string_view kGpt2Pattern;
// Every number by itself, the "Digits" component.
extern const absl::string_view kDigitPattern;
// Every punctuation mark by itself, the "Punctuation" component; every white space, the "WhitespaceSplit" component.
extern const absl::string_view kPunctuationPattern;
extern const absl::string_view kWhiteSpacePattern;
// Kimi K2's, which comes with its tiktoken.model in the form of Python code.
extern const absl::string_view kKimiPattern;

}  // namespace sluice
