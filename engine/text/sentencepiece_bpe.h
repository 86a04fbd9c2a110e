// SentencePiece's BPE (Kudo and Richardson, arXiv:1808.06226), as GGUF files of model "llama" carry it: characters are
// symbols, and two neighbours merge if together they are a piece, the piece with the highest score first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/bpe_merge.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Appends the bytes that `token` of type `type` stands for: "▁" is a space, "<0x0A>" of type kByte is that byte.
void AppendSentencePieceBytes(absl::string_view token, TokenType type, std::string* out);

// Immutable; Encode is thread-safe. The spec's string_views must outlive it.
class SentencePieceBpe {
 public:
  // Reads tokens, types, scores, add_space_prefix and unk_id of `spec`. INVALID_ARGUMENT: not one score per token, a
  // score that is not a number, a kByte token that is not spelled <0xXX>.
  static absl::StatusOr<SentencePieceBpe> Create(const TokenizerSpec& spec);

  // Appends the ids of `text`, a whole span between added tokens; nothing for an empty one. A character that is no
  // piece becomes its byte tokens if the vocabulary has them all; otherwise the unknown token, one for a run of such
  // characters, or nothing where the model has none. REQUIRES: `text` is UTF-8, shorter than 2^29 bytes.
  void Encode(absl::string_view text, MergeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  struct Piece {
    int32_t id;
    uint32_t rank;  // of its score among all, best first; equal scores have equal ranks
  };

  void AppendFallback(absl::string_view character, bool* after_unknown, std::vector<int32_t>* ids) const;

  absl::flat_hash_map<absl::string_view, Piece>
      pieces_;                         // what merging may produce: normal, user-defined and unused tokens
  size_t longest_piece_ = 0;           // in bytes
  std::array<int32_t, 256> byte_ids_;  // -1: no such token
  int32_t unk_id_ = -1;
  bool add_space_prefix_ = true;
};

}  // namespace sluice
