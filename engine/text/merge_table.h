// The merges of a byte-pair encoding by the two tokens that they join.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/bpe_merge.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Token ids by spelling; the views are those of the spec. Empty spellings and added tokens that are not the model's own
// are left out; of equal ones the first counts.
using TokenIds = absl::flat_hash_map<absl::string_view, int32_t>;
TokenIds IndexTokens(const TokenizerSpec& spec);

// Immutable; thread-safe.
class MergeTable {
 public:
  // INVALID_ARGUMENT: a merge with a side or a result that is no token.
  static absl::StatusOr<MergeTable> Create(const std::vector<MergeRule>& merges, const TokenIds& ids);

  // Of two neighbouring tokens; id -1: they do not merge.
  BpeMerge Find(int32_t left, int32_t right) const {
    const auto it = merges_.find(Key(left, right));
    return it == merges_.end() ? BpeMerge() : it->second;
  }

 private:
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  absl::flat_hash_map<uint64_t, BpeMerge> merges_;
};

}  // namespace sluice
