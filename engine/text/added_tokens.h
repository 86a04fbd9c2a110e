// Tokens that are matched in raw text as a whole, before any splitting: control, unknown and user-defined ones.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/byte_trie.h"

namespace sluice {

// Immutable once filled; Find is thread-safe.
class AddedTokens {
 public:
  // An empty text is ignored; of equal texts the first wins.
  void Add(absl::string_view text, int32_t id);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;
  };

  // The leftmost match in `text` at or after `from`, the longest one there; id -1 if there is none. Time: the distance
  // walked times the longest added token at worst, usually the distance.
  Match Find(absl::string_view text, size_t from) const;

 private:
  ByteTrie trie_;
  std::vector<int32_t> ids_{-1};  // [node]: the token that ends there, or -1
  std::bitset<256> first_bytes_;
};

}  // namespace sluice
