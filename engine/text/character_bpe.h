// Byte-pair encoding over characters, as the tokenizer.json of SentencePiece models states it (Llama 2, Mistral,
// Gemma): a ranked list of merges, and bytes <0xXX> for characters that are no token.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/bpe_merge.h"
#include "engine/text/merge_table.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// "<0x0A>" -> 10, in either case of the digits; -1 for any other token.
int ParseByteToken(absl::string_view token);

// Immutable; Encode is thread-safe. The spec's string_views must outlive it.
class CharacterBpe {
 public:
  // Reads tokens, merges, ignore_merges, byte_fallback, fuse_unk and unk_id of `spec`. INVALID_ARGUMENT: a merge with a
  // side or a result that is no token.
  static absl::StatusOr<CharacterBpe> Create(const TokenizerSpec& spec);

  // Appends the ids of one word. A character that is no token becomes its byte tokens if byte_fallback is on and the
  // vocabulary has them all; otherwise the unknown token, one for a run of such characters if they are fused, or
  // nothing where the model has none. REQUIRES: `word` is UTF-8 and shorter than 2^31 bytes.
  void Encode(absl::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  TokenIds ids_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_;  // -1: no such token, or no byte_fallback
  int32_t unk_id_ = -1;
  bool ignore_merges_ = false;
  bool fuse_unk_ = false;
};

}  // namespace sluice
