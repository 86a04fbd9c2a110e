// Splits text into the words that byte-pair encoding works on, by the regular expressions that Hugging Face
// `tokenizers` uses for the same model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// How a named family of byte-level tokenizers treats text before the merges.
struct PreTokenizerRecipe {
  absl::string_view name;                   // GGUF's tokenizer.ggml.pre
  std::vector<absl::string_view> patterns;  // in Hugging Face's syntax
  bool ignore_merges = false;               // a word that is a token is that token, whatever the merges make of it
};

// INVALID_ARGUMENT lists the known names. The result lives for ever.
absl::StatusOr<const PreTokenizerRecipe*> FindPreTokenizerRecipe(absl::string_view name);

// Immutable; thread-safe.
class PreTokenizer {
 public:
  // `patterns` are applied one after the other, each to the pieces that the one before it made; matches and the gaps
  // between them are both pieces ("isolated"). INVALID_ARGUMENT: a pattern that does not compile, with the place.
  static absl::StatusOr<PreTokenizer> Create(absl::Span<const absl::string_view> patterns);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the words of `text`, which cover it without gaps, in order; views into `text`. INVALID_ARGUMENT: the text
  // makes a pattern backtrack more than 64 times per byte. REQUIRES: `text` is UTF-8.
  absl::Status Split(absl::string_view text, std::vector<absl::string_view>* words) const;

 private:
  class Pattern;

  PreTokenizer();

  std::vector<Pattern> patterns_;
};

}  // namespace sluice
