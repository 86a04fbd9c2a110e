// How the spellings of tokens become text, as Hugging Face `tokenizers` does it: a tokenizer's decoder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// The steps of a DecoderSpec in three stages: of each token by itself; of each piece, which is a token or a run of byte
// tokens made text; of the whole text. Immutable; thread-safe.
class TokenDecoder {
 public:
  // Turns tokens into nothing but themselves.
  TokenDecoder() = default;

  // UNIMPLEMENTED: a step that cannot follow the ones before it. INVALID_ARGUMENT: a step that says what cannot be.
  static absl::StatusOr<TokenDecoder> Create(const DecoderSpec& spec);

  // What a token contributes before bytes are joined: bytes for a byte-level vocabulary, else UTF-8 where the spelling
  // is. INVALID_ARGUMENT: a pattern gives up on it.
  absl::StatusOr<std::string> Token(absl::string_view spelling) const;
  // Whether byte tokens (ParseByteToken of what Token returns) side by side are text together: if they are UTF-8 as a
  // whole, else one U+FFFD for each of them.
  bool joins_bytes() const { return joins_bytes_; }

  // The text of a piece. `first`: no piece came before it.
  std::string Piece(absl::string_view piece, bool first) const;
  bool has_piece_steps() const { return !piece_steps_.empty(); }
  bool space_between_tokens() const { return space_between_tokens_; }

  // The last stage, over a text that comes in portions. It takes whole characters only.
  class Text {
   public:
    explicit Text(const TokenDecoder& decoder);

    // What became certain of the text.
    std::string Push(absl::string_view text);
    // Forgets what is held back; with `begun`, what comes does not begin the whole text.
    void Continue(bool begun);

   private:
    struct State {
      int drop = 0;      // so many characters of a Strip may still be dropped from the beginning
      std::string held;  // at the end: they may be the last
    };

    const std::vector<DecoderStep>* steps_;
    std::vector<State> states_;  // [step]
  };

 private:
  std::vector<DecoderStep> token_steps_, piece_steps_, text_steps_;
  std::vector<Regex> patterns_;  // of the Replace steps among token_steps_, in order
  bool joins_bytes_ = false;
  bool space_between_tokens_ = false;
};

}  // namespace sluice
