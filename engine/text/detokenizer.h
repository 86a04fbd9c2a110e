// Token ids to text while they are being generated: whole characters only.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace sluice {

// The concatenation of all Push results and Flush equals Tokenizer::Decode of the same ids. Not thread-safe; copyable,
// so that several continuations of one prompt can start from one primed detokenizer. The tokenizer must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer* tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special), strip_left_(tokenizer->decoder().strip_left) {}

  // Says that the ids to come continue `prompt`: a character begun in the prompt can be completed, and a leading space
  // is kept. The prompt's own text is not returned. Call it before the first Push, or not at all.
  void Prime(absl::Span<const int32_t> prompt);

  // The text that became complete with `id`, often a word, sometimes empty. Holds back at most three bytes: a valid
  // beginning of a character. What can no longer become one is replaced by U+FFFD at once.
  std::string Push(int32_t id);

  // The end: U+FFFD if a character was left unfinished, else empty.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_token_ = true;  // no token has contributed yet
  int strip_left_;           // so many spaces may still be dropped: so far there was nothing else
  Utf8Assembler assembler_;
};

}  // namespace sluice
