// Vocabularies small enough to check by hand; they need no file.
#pragma once

#include <deque>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Owns the strings that its spec points to. Must outlive tokenizers made from it.
class TinyVocabulary {
 public:
  // The 256 byte symbols (id == byte), the results of `merges` ("a b", in order) from id 256 on, then `added`.
  static TinyVocabulary ByteLevel(absl::string_view pre, absl::Span<const absl::string_view> merges,
                                  absl::Span<const absl::string_view> added = {});
  // <unk> 0, <s> 1, </s> 2, the 256 byte tokens from id 3 if byte_tokens, then `pieces`, each with a lower score than
  // the one before.
  static TinyVocabulary SentencePiece(absl::Span<const absl::string_view> pieces, bool byte_tokens = true);

  TinyVocabulary(TinyVocabulary&&) = default;

  // Returns the new token's id.
  int32_t Add(absl::string_view text, TokenType type, float score = 0);

  TokenizerSpec spec;

 private:
  TinyVocabulary() = default;
  absl::string_view Keep(absl::string_view text);

  std::deque<std::string> storage_;  // a deque: its elements stay where they are
};

}  // namespace sluice
