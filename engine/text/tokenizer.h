// Text to token ids and back, equal to Hugging Face `tokenizers`.
//
// Encoding: added tokens are found in the raw text (leftmost, then longest); each span between them is normalized,
// cut at those added tokens that are to be found in normalized text, and split into words by the pre-tokenizer; the
// model encodes each word; BOS and EOS come last. Decoding: every token stands for a fixed string of bytes; their
// concatenation is read as UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/character_bpe.h"
#include "engine/text/token_decoder.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/ranked_bpe.h"
#include "engine/text/sentencepiece_bpe.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

struct EncodeOptions {
  bool add_special = true;  // BOS and EOS where the model wants them. False for text that a chat template rendered.
  bool parse_special =
      true;  // Control tokens (<|im_end|>, </s>) in the text become their ids; else they are just text.
};

// A span of a text whose parts are not equally trusted: a chat template's own words, and the words of a message,
// whose control tokens are just text.
struct TextSegment {
  absl::string_view text;
  bool parse_special = true;
};

// Immutable after Create; all methods are thread-safe. The memory behind the spec's string_views must outlive it,
// unless the spec's storage holds it.
class Tokenizer {
 public:
  // INVALID_ARGUMENT names the field of the spec, what was found and what was expected.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(TokenizerSpec spec);

  // INVALID_ARGUMENT: `text` is not UTF-8 (with the byte offset) or longer than 256 MiB.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, const EncodeOptions& options = {}) const;

  // Encodes the concatenation of `segments`. A control token (IsControl) is matched only where all of its bytes lie in
  // segments with parse_special (adjacent ones count as one, those with another segment between them, even an empty
  // one, do not); everything else is encoded as if the borders were not there, but that no other added token takes part
  // of a control token so matched. options.parse_special false overrides all segments. A token that is found in
  // normalized text counts as lying where the text lay that was normalized into it. Offsets in errors count from the
  // first segment's first byte.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::Span<const TextSegment> segments,
                                              const EncodeOptions& options = {}) const;

  // The text of `ids`, always UTF-8. What is not becomes U+FFFD: of the byte tokens of a vocabulary of characters
  // (<0x0A>) every one of a run that is not UTF-8 as a whole, elsewhere every maximal subpart. skip_special leaves out
  // IsSpecial tokens. Ids outside the vocabulary contribute nothing.
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special) const;

  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }
  bool Contains(int32_t id) const { return id >= 0 && id < vocab_size(); }

  // The token as the model file spells it ("Ġthe"), and the exact bytes it contributes to a text (" the"; not always
  // whole characters). Empty for ids outside the vocabulary.
  absl::string_view TokenText(int32_t id) const;
  absl::string_view TokenBytes(int32_t id) const;

  // Control and unknown tokens, except an added one that normalization rewrites: the reference knows special tokens by
  // their text, and no longer knows that one. False for ids outside the vocabulary.
  bool IsSpecial(int32_t id) const;
  // Added tokens that structure a prompt, and so are matched only in text that may do that: control and unknown ones;
  // and of the others, since files often leave it at that, those spelled like one (<|user|>, <｜User｜>,
  // <start_of_turn>) and those that begin, end or fill up a text. False for ids outside the vocabulary.
  bool IsControl(int32_t id) const { return Contains(id) && control_[id]; }
  // Tokens after which the model has said all, ascending: eos, eot and eom of the file, and control tokens known to
  // mean that by their text.
  absl::Span<const int32_t> end_of_generation_ids() const { return end_of_generation_ids_; }

  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  std::optional<int32_t> eot_id() const { return eot_id_; }
  std::optional<int32_t> unk_id() const { return unk_id_; }
  std::optional<int32_t> pad_id() const { return pad_id_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

  // What of decoding is no property of a single token; for Detokenizer.
  const TokenDecoder& decoder() const { return decoder_; }
  // A token whose byte is text only together with the byte tokens beside it: decoder().joins_bytes().
  bool IsByteToken(int32_t id) const { return Contains(id) && !byte_tokens_.empty() && byte_tokens_[id]; }
  // Like TokenBytes, of a token that is the first of its text. REQUIRES: !IsByteToken(id).
  std::string FirstTokenBytes(int32_t id) const;

 private:
  using Model = std::variant<ByteLevelBpe, CharacterBpe, RankedBpe, SentencePieceBpe>;
  struct Encoding;  // one call of Encode

  Tokenizer(Model model, Normalizer normalizer, PreTokenizer pre_tokenizer)
      : model_(std::move(model)), normalizer_(std::move(normalizer)), pre_tokenizer_(std::move(pre_tokenizer)) {}

  static absl::StatusOr<Model> CreateModel(const TokenizerSpec& spec);
  void FindControlTokens(const TokenizerSpec& spec);
  absl::Status FillAddedTokens(const TokenizerSpec& spec);
  absl::string_view DecodedSpelling(int32_t id) const;
  absl::Status FillTokenBytes();
  void FindEndOfGeneration(const TokenizerSpec& spec);

  // A span between added tokens of the raw text; trusted as in Normalizer::Run, where it matters.
  absl::Status EncodeStretch(absl::string_view text, bool at_start, std::string trusted, Encoding* encoding) const;
  // A span between added tokens of normalized text.
  absl::Status EncodeWords(absl::string_view text, bool at_start, Encoding* encoding) const;

  const Model model_;
  const Normalizer normalizer_;
  const PreTokenizer pre_tokenizer_;
  AddedTokens raw_tokens_;         // found in the text as it came
  AddedTokens normalized_tokens_;  // found in normalized text
  TokenDecoder decoder_;
  bool bytes_by_type_ = false;  // decoded as GGUF's SentencePiece vocabularies are, by the tokens' types
  std::vector<absl::string_view> tokens_;
  std::vector<TokenType> types_;
  std::vector<bool> control_;                            // [vocab_size]
  absl::flat_hash_map<int32_t, std::string> rewritten_;  // added tokens that normalization rewrites: decoded so
  std::string bytes_;                                    // what the tokens decode to, one after the other
  std::vector<uint32_t> bytes_offsets_;                  // [vocab_size + 1] into bytes_
  std::vector<bool> byte_tokens_;                        // [vocab_size] if decoder_.joins_bytes(), else empty
  std::vector<int32_t> end_of_generation_ids_;
  std::optional<int32_t> bos_id_, eos_id_, eot_id_, unk_id_, pad_id_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  std::vector<int32_t> prefix_ids_, suffix_ids_;
  std::shared_ptr<const void> storage_;
};

}  // namespace sluice
