// Byte-pair encoding by ranks, as tiktoken does it: there is no list of merges; two neighbours merge if together they
// are a token, and a token with a lower id is made earlier.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/bpe_merge.h"
#include "engine/text/merge_table.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Immutable; Encode is thread-safe. The spec's string_views must outlive it.
class RankedBpe {
 public:
  // Reads tokens (bytes as they are, not spelled) and types of `spec`; only normal tokens are made by merging.
  // INVALID_ARGUMENT: a byte that is no token.
  static absl::StatusOr<RankedBpe> Create(const TokenizerSpec& spec);

  // Appends the ids of one word. REQUIRES: word.size() < 2^31.
  void Encode(absl::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  int32_t Find(absl::string_view bytes) const;

  TokenIds ids_;
  size_t longest_ = 0;  // of a token, in bytes
};

}  // namespace sluice
