// Token ids to text while they are being generated: whole characters only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace sluice {

// The concatenation of all Push results and Flush equals Tokenizer::Decode of the same ids. Not thread-safe; copyable,
// so that several continuations of one prompt can start from one primed detokenizer. The tokenizer must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer* tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special), text_(tokenizer->decoder()) {}

  // Says that the ids to come continue `prompt`: a character begun in the prompt can be completed, and a leading space
  // is kept. The prompt's own text is not returned. Call it before the first Push, or not at all.
  void Prime(absl::Span<const int32_t> prompt);

  // The text that became complete with `id`, often a word, sometimes empty. Holds back a valid beginning of a
  // character, at most three bytes, and a whole run of byte tokens (Tokenizer::IsByteToken): whether its characters
  // count is decided by its end. What can no longer become a character is replaced by U+FFFD at once.
  std::string Push(int32_t id);

  // The end: what is held back, U+FFFD for a character that was left unfinished.
  std::string Flush();

 private:
  void EndRun(std::string* out);
  void AppendPiece(absl::string_view bytes, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;     // no piece has come yet
  std::string run_;       // the byte tokens that came last, as bytes
  size_t run_begin_ = 0;  // what of run_ the prompt had complete
  Utf8Assembler assembler_;
  TokenDecoder::Text text_;
};

}  // namespace sluice
