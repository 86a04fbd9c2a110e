// Byte-level byte-pair encoding, as GPT-2 introduced it ("Language Models are Unsupervised Multitask Learners", 2019):
// text is bytes, each byte is a symbol, and a ranked list of merges joins neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/bpe_merge.h"
#include "engine/text/merge_table.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Such vocabularies spell bytes as printable characters: ! to ~, ¡ to ¬ and ® to ÿ stand for themselves, the other 68
// bytes in ascending order for U+0100 to U+0143 ("Ġ" is the space).
char32_t ByteLevelCharacter(uint8_t byte);
// Appends the bytes that `token` spells; a token with any other character stands for its own UTF-8.
void AppendByteLevelBytes(absl::string_view token, std::string* out);

// Immutable; Encode is thread-safe. The spec's string_views must outlive it.
class ByteLevelBpe {
 public:
  // Reads tokens, merges and ignore_merges of `spec`. INVALID_ARGUMENT: a merge with a side or a result that is no
  // token.
  static absl::StatusOr<ByteLevelBpe> Create(const TokenizerSpec& spec);

  // Appends the ids of one word. A byte whose symbol the vocabulary lacks vanishes. REQUIRES: word.size() < 2^31.
  void Encode(absl::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  std::array<int32_t, 256> byte_ids_;  // -1: no such symbol
  MergeTable merges_;
  TokenIds whole_words_;  // all tokens if ignore_merges, else empty
};

}  // namespace sluice
