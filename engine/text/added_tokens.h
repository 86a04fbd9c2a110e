// Tokens that are matched in text as a whole, before any splitting: control, unknown and user-defined ones.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/byte_trie.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Immutable once filled; Find and Cut are thread-safe.
class AddedTokens {
 public:
  // An empty text and one that is not UTF-8 are ignored: no text has them inside. Of equal texts the first wins.
  void Add(absl::string_view text, int32_t id);
  // Says more of a token that was added.
  void SetOptions(const AddedTokenOptions& options) { options_[options.id] = options; }

  bool empty() const { return ids_.size() == 1; }

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;
  };

  // The leftmost match in `text` at or after `from`, the longest one there; id -1 if there is none. Takes no notice of
  // options. Time: the distance walked times the longest added token at worst, usually the distance.
  Match Find(absl::string_view text, size_t from) const;

  // Appends the tokens in `text` and (with id -1) what lies between them, in order. A token matches only inside of one
  // of the `searchable` ranges, which ascend and are disjoint; the white space that lstrip and rstrip take may lie
  // anywhere. REQUIRES: `text` is UTF-8.
  void Cut(absl::string_view text, absl::Span<const TextRange> searchable, std::vector<Match>* parts) const;

 private:
  ByteTrie trie_;
  std::vector<int32_t> ids_{-1};  // [node]: the token that ends there, or -1
  std::bitset<256> first_bytes_;
  absl::flat_hash_map<int32_t, AddedTokenOptions> options_;  // by id; of few tokens
};

}  // namespace sluice
