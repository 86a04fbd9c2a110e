// What happens to a span of text before it is split into words.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Equal to Hugging Face `tokenizers` 0.23, whose normalization forms know Unicode 9: later characters stay as they are
// and keep their place. Immutable; thread-safe.
class Normalizer {
 public:
  // INVALID_ARGUMENT: a pattern that regex.h refuses, a text of more than 256 bytes.
  static absl::StatusOr<Normalizer> Create(absl::Span<const NormalizerStep> steps);

  bool empty() const { return steps_.empty(); }

  // Rewrites *text. *trusted is empty or holds a character for every byte of *text, and is rewritten along: '\0' for
  // what is not trusted, others for spans that are. What a step puts there itself is trusted, what it makes of
  // bytes of several spans is not. INVALID_ARGUMENT: the result is longer than 500 MB, or a pattern gives up.
  // REQUIRES: *text is UTF-8.
  absl::Status Run(std::string* text, std::string* trusted) const;

 private:
  struct Step {
    NormalizerKind kind;
    std::string text;
    std::vector<Regex> pattern;  // of kReplace: exactly one
  };

  std::vector<Step> steps_;
};

}  // namespace sluice
