// A tokenizer as data: what a model file says about its vocabulary. Whoever reads the file (a GGUF today) fills this
// struct; Tokenizer::Create validates it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

enum class TokenizerModel {
  kByteLevelBpe,      // GGUF tokenizer.ggml.model "gpt2": bytes as printable characters, a ranked list of merges
  kSentencePieceBpe,  // GGUF "llama": characters, the piece with the best score is merged first, bytes as a fallback
};

// The values are GGUF's tokenizer.ggml.token_type. A value outside the list is refused by Tokenizer::Create.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,      // the token for what the vocabulary cannot say
  kControl = 3,      // <s>, <|im_end|>: matched in text as a whole, left out of text by skip_special
  kUserDefined = 4,  // matched in text as a whole, but ordinary text when decoded
  kUnused = 5,
  kByte = 6,  // "<0x0A>" in a SentencePiece vocabulary
};

// One BPE merge; its rank is its place in the list. Both sides are spelled as in `tokens`.
struct MergeRule {
  absl::string_view left;
  absl::string_view right;
};

// "Ġ the" -> {"Ġ", "the"}, the way GGUF writes a merge: split at the first space that is not the first byte. Without
// such a space `right` is empty, which Tokenizer::Create refuses.
inline MergeRule ParseMergeRule(absl::string_view line) {
  const size_t space = line.find(' ', 1);
  if (space == absl::string_view::npos) return {line, absl::string_view()};
  return {line.substr(0, space), line.substr(space + 1)};
}

// The string_views point into memory that outlives the Tokenizer made from them (the mapped model file): nothing is
// copied.
struct TokenizerSpec {
  TokenizerModel model = TokenizerModel::kByteLevelBpe;
  std::vector<absl::string_view> tokens;  // [vocab_size], as the file spells them
  std::vector<TokenType> types;           // [vocab_size], or empty: all kNormal
  std::vector<float> scores;              // [vocab_size], kSentencePieceBpe only; higher merges earlier
  std::vector<MergeRule> merges;          // kByteLevelBpe only, best first
  std::string pre;                        // kByteLevelBpe only: tokenizer.ggml.pre, a name known to pre_tokenizer.h

  bool add_bos = false;  // Encode with add_special puts bos_id first
  bool add_eos = false;  // ... and eos_id last
  bool add_space_prefix =
      true;  // kSentencePieceBpe only: every stretch of text between added tokens starts with a space

  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> eot_id;  // end of turn
  std::optional<int32_t> eom_id;  // end of message
  std::optional<int32_t> unk_id;
  std::optional<int32_t> pad_id;
};

}  // namespace sluice
