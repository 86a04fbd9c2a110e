// Splits text into the words that byte-pair encoding works on, the way Hugging Face `tokenizers` does for the same
// model.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Immutable; thread-safe.
class PreTokenizer {
 public:
  // The steps are applied one after the other, each to the pieces that the one before it made; pieces that become empty
  // are dropped. INVALID_ARGUMENT: a pattern that regex.h refuses, a mark that is not one character.
  static absl::StatusOr<PreTokenizer> Create(absl::Span<const PreTokenizerStep> steps);

  struct Words {
    std::vector<absl::string_view> words;
    std::deque<std::string> rewritten;  // owns the words that are not part of the text
  };

  // Sets `out` to the words of `text`, in order; views into `text` or into out->rewritten. at_start: `text` begins the
  // whole text, which PrependScheme::kFirst asks for. INVALID_ARGUMENT: the text makes a pattern backtrack too long.
  // REQUIRES: `text` is UTF-8.
  absl::Status Split(absl::string_view text, bool at_start, Words* out) const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::vector<Regex> pattern;  // of kSplit: exactly one
  };

  std::vector<Step> steps_;
};

}  // namespace sluice
