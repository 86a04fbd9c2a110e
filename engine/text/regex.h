// A regular expression of a tokenizer, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// Immutable; thread-safe.
class Regex {
 public:
  // INVALID_ARGUMENT: a pattern that does not compile or that pcre_syntax.h refuses, with the place; one of more than
  // 64 KiB or, where it is an exact text, an empty one.
  static absl::StatusOr<Regex> Create(const TextPattern& pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // What matching needs besides the expression; one thread uses it for any number of texts. The Regex must outlive it.
  class Search {
   public:
    explicit Search(const Regex& regex);
    ~Search();

    // Appends the matches in `text`, in order and without overlap, empty ones included unless they touch the end of the
    // match before them. INVALID_ARGUMENT: one match backtracks more than 64 times per byte of the text. REQUIRES:
    // `text` is UTF-8.
    absl::Status FindAll(absl::string_view text, std::vector<TextRange>* matches);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace sluice
