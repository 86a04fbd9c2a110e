// A tokenizer as data: what a model's files say about its vocabulary and about the way from text to tokens and back.
// Whoever reads the files (GGUF, tokenizer.json) fills this struct; Tokenizer::Create validates it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

enum class TokenizerModel {
  kByteLevelBpe,      // GGUF tokenizer.ggml.model "gpt2": bytes as printable characters, a ranked list of merges
  kSentencePieceBpe,  // GGUF "llama": characters, the piece with the best score is merged first, bytes as a fallback
  kCharacterBpe,      // tokenizer.json "BPE" without bytes: characters, a ranked list of merges, bytes as a fallback
  kRankedBpe,         // tiktoken: tokens are bytes, and neighbours merge if together they are a token, lowest id first
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

// What a step looks for: an exact text, or a regular expression in Hugging Face's (Oniguruma's) syntax.
struct TextPattern {
  std::string text;
  bool is_regex = false;
};

enum class NormalizerKind {
  kNfc,  // Unicode's normalization forms (UAX #15)
  kNfd,
  kNfkc,
  kNfkd,
  kPrepend,  // `text` before every span that is not empty
  kReplace,  // every match of `pattern` by `text`
};

// A step that rewrites a span of text between added tokens, before it is split.
struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::kNfc;
  TextPattern pattern = {};
  std::string text = {};
};

// What becomes of the matches of a Split and of the gaps between them.
enum class SplitBehavior {
  kIsolated,            // both are pieces
  kRemoved,             // only the gaps are
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece after it
  kContiguous,          // matches side by side are one piece
};

enum class PreTokenizerKind {
  kSplit,         // by `pattern`, `behavior` and `invert`
  kPrefixSpace,   // a space before every piece that does not start with one
  kMetaspace,     // `mark` for every space, and before a piece that does not start with it, as `prepend` says
  kByteSpelling,  // the bytes of every piece are spelled in the byte alphabet (see bpe.h) for the steps after this one
};

enum class PrependScheme { kAlways, kFirst, kNever };  // every piece; only the one that begins the whole text; none

// A step that splits pieces into smaller ones (or rewrites them one by one).
struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::kSplit;
  TextPattern pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and gaps change roles
  std::string mark = {};
  PrependScheme prepend = PrependScheme::kAlways;
};

enum class DecoderKind {
  kByteLevel,     // a token is bytes, spelled in the byte alphabet (see bpe.h); the rest is about their text as a whole
  kByteFallback,  // tokens <0x0A> side by side are bytes: their text, or where they are not UTF-8 a U+FFFD for each
  kFuse,          // the rest is about the text as a whole
  kReplace,       // every match of `pattern` by `text`
  kStrip,         // at most `start` times the character `text` is dropped from the beginning, `stop` times from the end
  kMetaspace,     // `pattern` is replaced by `text`, but in the first piece, unless `prepend` is kNever, by nothing
};

// A step of decoding. Until a Fuse or ByteLevel it is about each token by itself, until then, after a ByteFallback,
// about each token or run of bytes.
struct DecoderStep {
  DecoderKind kind = DecoderKind::kFuse;
  TextPattern pattern = {};
  std::string text = {};
  int32_t start = 0;
  int32_t stop = 0;
  PrependScheme prepend = PrependScheme::kAlways;
};

// How the spellings of tokens become text: by these steps, one after the other, and joined then. See decoder.h for the
// orders that are supported.
struct DecoderSpec {
  std::vector<DecoderStep> steps;
  bool space_between_tokens = false;  // as it is without any decoder
};

// Of a token that is matched in text as a whole; see AddedTokens.
struct AddedTokenOptions {
  int32_t id = 0;
  bool lstrip = false;       // takes the white space before it, too
  bool rstrip = false;       // ... after it
  bool single_word = false;  // matches only where neither neighbour is part of a word
  bool normalized = false;   // matched, itself normalized, in normalized text; otherwise in the text as it came
  bool in_model = true;      // one of the model's own tokens, too; otherwise only matching makes it, never the BPE
};

// The string_views point into memory that outlives the Tokenizer made from them (the mapped model file) or that
// `storage` keeps alive: nothing is copied.
struct TokenizerSpec {
  TokenizerModel model = TokenizerModel::kByteLevelBpe;
  std::vector<absl::string_view> tokens;  // [vocab_size], as the file spells them; empty: no token has this id
  std::vector<TokenType> types;           // [vocab_size], or empty: all kNormal
  std::vector<float> scores;              // [vocab_size], kSentencePieceBpe only; higher merges earlier
  std::vector<MergeRule> merges;          // kByteLevelBpe and kCharacterBpe, best first
  std::vector<AddedTokenOptions> added;   // of those control, unknown and user-defined tokens that have any

  // kByteLevelBpe: tokenizer.ggml.pre, a name known to recipes.h, which then stands for the next three fields.
  std::optional<std::string> pre;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges make of it

  bool byte_fallback = false;  // kCharacterBpe: a character that is no token is its bytes <0xXX>, if all of them are
  bool fuse_unk = false;       // kCharacterBpe: unknown characters side by side are one unknown token
  std::optional<DecoderSpec> decoder;  // nothing: as is usual for the model

  bool add_bos = false;  // Encode with add_special puts bos_id first
  bool add_eos = false;  // ... and eos_id last
  // Encode with add_special puts these first, too, and last: tokenizers that want several, or others than BOS and EOS.
  std::vector<int32_t> prefix_ids, suffix_ids;
  // kSentencePieceBpe only: every span of text between added tokens starts with a space.
  bool add_space_prefix = true;

  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> eot_id;  // end of turn
  std::optional<int32_t> eom_id;  // end of message
  std::optional<int32_t> unk_id;
  std::optional<int32_t> pad_id;

  std::shared_ptr<const void> storage;
};

}  // namespace sluice
