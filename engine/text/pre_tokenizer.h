// Splits text into the words that byte-pair encoding works on, by the regular expressions that Hugging Face
// `tokenizers` uses for the same model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Immutable; thread-safe.
class PreTokenizer {
 public:
  // `name` is GGUF's tokenizer.ggml.pre. INVALID_ARGUMENT lists the known names.
  static absl::StatusOr<PreTokenizer> Create(absl::string_view name);

  PreTokenizer(PreTokenizer&&);
  PreTokenizer& operator=(PreTokenizer&&);
  ~PreTokenizer();

  // Appends the words of `text`, which cover it without gaps, in order; views into `text`. INVALID_ARGUMENT: the text
  // needs more backtracking than any real text does. REQUIRES: `text` is UTF-8.
  absl::Status Split(absl::string_view text, std::vector<absl::string_view>* words) const;

 private:
  class Pattern;

  PreTokenizer();

  std::vector<Pattern> patterns_;  // applied one after the other, each to the pieces that the one before made
};

}  // namespace sluice
